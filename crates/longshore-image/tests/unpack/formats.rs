//! The formats: ustar, PAX, GNU, old ones, and what is broken in each.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::stage::{Stage, check, check_refused, is_root};
use crate::tar_writer::{Entry, MTIME, file, folder, hard_link, octal, other, symlink, tar};

#[test]
fn long_names_come_by_prefix_pax_and_gnu_headers() {
    let long = format!("{}/{}", "d".repeat(120), "n".repeat(200));
    let gnu = |typeflag, name: &str| {
        let mut header = other(typeflag, "././@LongLink").gnu();
        header.data = format!("{name}\0").into_bytes();
        header
    };
    let split = file("n".repeat(90), "3").patch(345, "p".repeat(100));
    let cut = file("short", "1").gnu();
    check(
        &[
            tar([
                gnu(b'L', &long),
                cut,
                file("prefix-not-gnu", "").gnu().patch(345, "9999"),
            ]),
            tar([gnu(b'K', &long), hard_link("link", "cut").gnu(), split]),
            tar([file(format!("{}pax", "e".repeat(150)), "2")]),
        ],
        &format!(
            "{d}/ 755\n{long} 644 \"1\"\n{e}pax 644 \"2\"\nlink 644 \"1\"\n{p}/ 755\n{p}/{n} 644 \
             \"3\"\nprefix-not-gnu 644 \"\"",
            d = "d".repeat(120),
            e = "e".repeat(150),
            p = "p".repeat(100),
            n = "n".repeat(90),
        ),
    );
}

#[test]
fn names_of_any_bytes_are_kept() {
    let stage = Stage::new();
    let names: [&[u8]; 4] = [b"\xff\xfe", b"new\nline", b"\x01\x7f", "größe".as_bytes()];
    stage
        .unpack(&[tar(names.map(|name| file(name, "1")))])
        .expect("Linux takes them");
    for name in names {
        let path = stage.root().join(OsStr::from_bytes(name));
        assert_eq!(fs::read(path).expect("made"), b"1");
    }
    check_refused(&[tar([file("a", "").pax("path", "a\0b")])], "NUL");
    let error = Stage::new()
        .unpack(&[tar([hard_link("bad\x1b[31m\n", "x")])])
        .expect_err("no such target");
    assert!(!error.to_string().contains(['\x1b', '\n']), "{error:?}");
}

#[test]
fn times_are_exact_also_of_folders_that_later_layers_change() {
    let stage = Stage::new();
    stage
        .unpack(&[
            tar([
                folder("d").pax("mtime", "1600000000.123456789"),
                file("d/a", "1").pax("mtime", "-1.5"),
                symlink("d/l", "a").pax("mtime", "5.25"),
                other(b'6', "d/p"),
            ]),
            tar([file("d/b", "2"), file("d/.wh.a", "")]),
        ])
        .expect("sound");
    let of = |name: &str| {
        let meta = fs::symlink_metadata(stage.root().join(name)).expect("made");
        (meta.mtime(), meta.mtime_nsec())
    };
    assert_eq!(of("d"), (1_600_000_000, 123_456_789));
    assert_eq!(of("d/b"), (MTIME as i64, 0));
    assert_eq!(of("d/l"), (5, 250_000_000));
    assert_eq!(of("d/p"), (MTIME as i64, 0));
    let stage = Stage::new();
    stage
        .unpack(&[tar([file("e/f", "1").pax("mtime", "-1.5")])])
        .expect("sound");
    let meta = |name: &str| fs::metadata(stage.root().join(name)).expect("made");
    assert_eq!(
        (meta("e/f").mtime(), meta("e/f").mtime_nsec()),
        (-2, 500_000_000)
    );
    assert_eq!(
        meta("e").mtime(),
        -2,
        "a folder that nobody describes has its entry's time"
    );
}

#[test]
fn extended_attributes_that_a_user_may_have_are_set() {
    let stage = Stage::new();
    let summary = stage
        .unpack(&[
            tar([
                file("f", "1")
                    .mode(0o444)
                    .pax("SCHILY.xattr.user.note", "a\0b"),
                folder("d").pax("SCHILY.xattr.user.old", "x"),
                file("c", "1").pax(
                    "SCHILY.xattr.security.capability",
                    b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                ),
                file("o", "1")
                    .pax("SCHILY.xattr.user.overlay.opaque", "y")
                    .pax("SCHILY.xattr.trusted.overlay.opaque", "y"),
                symlink("s", "f").pax("SCHILY.xattr.user.note", "no"),
            ]),
            tar([folder("d").pax("SCHILY.xattr.user.new", "y")]),
        ])
        .expect("sound");
    let read = |name: &str, key: &str| {
        let mut value = Vec::with_capacity(256);
        let path = stage.root().join(name);
        rustix::fs::getxattr(&path, key, rustix::buffer::spare_capacity(&mut value))
            .ok()
            .map(|_| value)
    };
    assert_eq!(summary.total.setid_files, 0);
    assert_eq!(read("o", "user.overlay.opaque"), None);
    assert_eq!(read("o", "trusted.overlay.opaque"), None);
    if summary.total.xattrs == 0 {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("SKIPPED: the temporary folder's file system has no user.* attributes");
        }
        return;
    }
    assert_eq!(read("f", "user.note").as_deref(), Some(&b"a\0b"[..]));
    assert_eq!(read("d", "user.old"), None);
    assert_eq!(read("d", "user.new").as_deref(), Some(&b"y"[..]));
    assert_eq!(read("c", "security.capability").is_some(), is_root());
    let mode = fs::metadata(stage.root().join("f")).expect("made").mode();
    assert_eq!(mode & 0o7777, 0o444);
}

#[test]
fn a_slash_behind_the_name_of_a_file_makes_it_a_folder() {
    let mut old = file("v7/", "");
    old.typeflag = 0;
    old.magic = b"\0\0\0\0\0\0\0\0";
    let mut contiguous = file("c", "1");
    contiguous.typeflag = b'7';
    check(
        &[tar([
            old,
            file("d/", "data that nobody reads"),
            contiguous,
            file("a", "1"),
        ])],
        "a 644 \"1\"\nc 644 \"1\"\nd/ 644\nv7/ 644"
            .replace("/ 644", if is_root() { "/ 644" } else { "/ 744" })
            .as_str(),
    );
}

#[test]
fn a_pax_header_speaks_of_its_entry_and_of_nothing_between() {
    // The size of the PAX header must not be taken for that of the long name behind it, or the
    // archive would mean one thing here and another elsewhere (RUSTSEC-2026-0112).
    let mut name = other(b'L', "././@LongLink").gnu();
    name.data = b"real-name\0".to_vec();
    let mut pax = other(b'x', "pax");
    pax.data = crate::tar_writer::pax_record(b"size", b"3");
    check(
        &[tar([
            pax,
            name,
            file("cut", "abc").size(0),
            file("after", "1"),
        ])],
        "after 644 \"1\"\nreal-name 644 \"abc\"",
    );
    // A global header is no entry and changes none.
    let mut global = other(b'g', "pax_global_header");
    global.data = crate::tar_writer::pax_record(b"path", b"everywhere");
    check(&[tar([global, file("a", "1")])], "a 644 \"1\"");
    // Of two in a row the last one counts; an empty value gives the field back to the header.
    let record = |key: &[u8], value: &[u8]| {
        let mut pax = other(b'x', "pax");
        pax.data = crate::tar_writer::pax_record(key, value);
        pax
    };
    check(
        &[tar([
            record(b"path", b"one"),
            record(b"path", b"two"),
            file("x", "1"),
        ])],
        "two 644 \"1\"",
    );
    check(
        &[tar([record(b"path", b""), file("x", "1")])],
        "x 644 \"1\"",
    );
}

#[test]
fn broken_archives_are_refused_with_the_reason() {
    let sound = tar([file("a", vec![7; 2000]), folder("d")]);
    for (cut, reason) in [(700, "inside"), (100, "inside a header"), (2000, "inside")] {
        check_refused(&[sound[..cut].to_vec()], reason);
    }
    // Without the end mark: accepted by everybody.
    let stage = Stage::new();
    stage
        .unpack(&[sound[..sound.len() - 1024].to_vec()])
        .expect("accepted");
    check_refused(&[vec![b'x'; 512]], "not a tar header");
    let mut wrong = sound.clone();
    wrong[0] ^= 1;
    check_refused(&[wrong], "checksum is wrong");
    let mut gap = vec![0; 512];
    gap.extend(&sound);
    check_refused(&[gap], "empty block");
    let mut pax = other(b'x', "pax");
    pax.data = b"nonsense".to_vec();
    check_refused(&[tar([pax.clone(), file("a", "")])], "PAX record");
    pax.data = crate::tar_writer::pax_record(b"path", b"a");
    check_refused(&[tar([pax])], "ends after an extension header");
    check_refused(
        &[tar([other(b'L', "x").size(1 << 30)])],
        "extension header of",
    );
    check_refused(
        &[tar([other(b'x', "x").size(u64::MAX >> 2)])],
        "extension header of",
    );
    check_refused(&[tar([file("a", "").patch(100, "not-octl")])], "mode");
    check_refused(&[tar([file("a", "").patch(124, "-1\0")])], "size");
    check_refused(&[tar([file("a", "").pax("size", "-1")])], "size");
    check_refused(&[tar([file("a", "").pax("mtime", "soon")])], "mtime");
    let mut empty = Stage::new();
    empty
        .unpack(&[Vec::new()])
        .expect("an empty layer is a layer");
    empty = Stage::new();
    empty
        .unpack(&[vec![0; 10240]])
        .expect("an empty archive is one");
}

// Sparse files, as GNU tar writes them.

/// `x` at 0, `y` at 1 MiB, a hole to the end at 2 MiB.
fn check_sparse(entry: Entry) {
    let stage = Stage::new();
    stage
        .unpack(&[tar([entry, file("after", "1")])])
        .expect("sound");
    let data = fs::read(stage.root().join("s")).expect("made");
    assert_eq!(data.len(), 2 << 20);
    assert_eq!((data[0], data[1 << 20]), (b'x', b'y'));
    assert_eq!(data.iter().filter(|&&byte| byte != 0).count(), 2);
    let blocks = fs::metadata(stage.root().join("s")).expect("made").blocks();
    assert!(
        blocks * 512 < 1 << 20,
        "the holes are written out: {blocks} blocks"
    );
    assert_eq!(fs::read(stage.root().join("after")).expect("made"), b"1");
}

#[test]
fn sparse_files_of_all_four_formats_keep_their_holes() {
    let size = (2_u64 << 20).to_string();
    let data = || file("GNUSparseFile.0/s", "xy");
    check_sparse(
        data()
            .pax("GNU.sparse.name", "s")
            .pax("GNU.sparse.size", &size)
            .pax("GNU.sparse.numblocks", "2")
            .pax("GNU.sparse.offset", "0")
            .pax("GNU.sparse.numbytes", "1")
            .pax("GNU.sparse.offset", "1048576")
            .pax("GNU.sparse.numbytes", "1"),
    );
    check_sparse(
        data()
            .pax("GNU.sparse.name", "s")
            .pax("GNU.sparse.size", &size)
            .pax("GNU.sparse.map", "0,1,1048576,1,2097152,0"),
    );
    let mut map = b"3\n0\n1\n1048576\n1\n2097152\n0\n".to_vec();
    map.resize(512, 0);
    map.extend(b"xy");
    check_sparse(
        file("GNUSparseFile.0/s", map)
            .pax("GNU.sparse.major", "1")
            .pax("GNU.sparse.minor", "0")
            .pax("GNU.sparse.name", "s")
            .pax("GNU.sparse.realsize", &size),
    );
    let mut old = file("s", "xy").gnu();
    old.typeflag = b'S';
    let slots = [(0, 1), (1 << 20, 1), (2 << 20, 0)];
    for (index, (offset, bytes)) in slots.into_iter().enumerate() {
        old = old
            .patch(386 + 24 * index, octal(offset, 12))
            .patch(398 + 24 * index, octal(bytes, 12));
    }
    check_sparse(old.patch(483, octal(2 << 20, 12)));
}

#[test]
fn an_old_sparse_map_goes_on_in_further_blocks() {
    // Six parts of one byte, 4 KiB apart: four in the header, two in the block behind it.
    let mut old = file("s", "").gnu();
    old.typeflag = b'S';
    for index in 0..4_u64 {
        old = old
            .patch(386 + 24 * index as usize, octal(index * 4096, 12))
            .patch(398 + 24 * index as usize, octal(1, 12));
    }
    old = old.patch(482, [1]).patch(483, octal(6 * 4096, 12)).size(6);
    for index in 4..6_u64 {
        old.data.extend(octal(index * 4096, 12));
        old.data.extend(octal(1, 12));
    }
    old.data.resize(512, 0);
    old.data.extend(b"abcdef");
    let stage = Stage::new();
    stage
        .unpack(&[tar([old, file("after", "1")])])
        .expect("sound");
    let data = fs::read(stage.root().join("s")).expect("made");
    let bytes: Vec<u8> = data.iter().copied().filter(|&byte| byte != 0).collect();
    assert_eq!((data.len(), bytes.as_slice()), (6 * 4096, &b"abcdef"[..]));
    assert_eq!(data[5 * 4096], b'f');
}

#[test]
fn sparse_maps_that_lie_are_refused() {
    let sparse = |map: &str| {
        file("s", "xy")
            .pax("GNU.sparse.name", "s")
            .pax("GNU.sparse.size", "100")
            .pax("GNU.sparse.map", map)
    };
    check_refused(
        &[tar([sparse("0,1")])],
        "2 bytes of data where its map says 1",
    );
    check_refused(&[tar([sparse("0,1,0,1")])], "overlap");
    check_refused(&[tar([sparse("99,2")])], "leave the file");
    check_refused(&[tar([sparse("0,1,50")])], "ends after an offset");
    check_refused(
        &[tar([sparse("0,18446744073709551615,5,3")])],
        "leave the file",
    );
    check_refused(&[tar([sparse("18446744073709551615,2")])], "2^64");
    check_refused(&[tar([sparse("x,y")])], "no number");
    check_refused(
        &[tar([file("s", "")
            .pax("GNU.sparse.major", "2")
            .pax("GNU.sparse.minor", "0")])],
        "not known",
    );
    check_refused(
        &[tar([file("s", "").pax("GNU.sparse.offset", "0")])],
        "ends after an offset",
    );
    for map in [
        "99999999999\n",
        "4294967296\n",
        "1\n",
        "1\n0\n",
        "-1\n",
        "\n",
    ] {
        let mut data = map.as_bytes().to_vec();
        data.resize(512, b'0');
        let entry = file("s", data)
            .pax("GNU.sparse.major", "1")
            .pax("GNU.sparse.minor", "0")
            .pax("GNU.sparse.realsize", "100");
        check_refused(&[tar([entry])], "sparse");
    }
    let mut old = file("s", "").patch(482, [1]);
    old.typeflag = b'S';
    check_refused(&[tar([old.clone()])], "not GNU's");
    old.data = b"x".to_vec();
    check_refused(
        &[tar([old.gnu().patch(482, [0]).patch(483, octal(10, 12))])],
        "1 bytes of data where its map says 0",
    );
}
