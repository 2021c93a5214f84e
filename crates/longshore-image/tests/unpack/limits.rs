//! Archives made to use up the machine.

use std::io::{self, Read};
use std::time::Instant;

use longshore_image::{Limits, UnpackError, Unpacker};

use crate::stage::{Stage, check_refused};
use crate::tar_writer::{Entry, file, folder, octal, symlink, tar};

#[track_caller]
fn check_limit(limits: Limits, layers: &[Vec<u8>], words: &str) {
    let error = Stage::new()
        .unpack_within(limits, layers)
        .expect_err("more than is allowed");
    assert!(matches!(error, UnpackError::Limit { .. }), "{error:?}");
    assert!(
        error.to_string().contains(words),
        "`{error}` does not say `{words}`"
    );
}

/// The same archive entry again and again, made while it is read.
struct Repeated {
    unit: Vec<u8>,
    left: u64,
    at: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let count = buffer.len().min(self.unit.len() - self.at);
        buffer[..count].copy_from_slice(&self.unit[self.at..self.at + count]);
        self.at += count;
        if self.at == self.unit.len() {
            self.at = 0;
            self.left -= 1;
        }
        Ok(count)
    }
}

fn repeated(entry: &Entry, count: u64) -> Repeated {
    let mut unit = Vec::new();
    entry.write(&mut unit);
    Repeated {
        unit,
        left: count,
        at: 0,
    }
}

#[test]
fn too_many_entries_over_all_layers_are_an_error() {
    let limits = Limits {
        entries: 3,
        ..Limits::default()
    };
    let layer = || tar([file("a", ""), file("b", "")]);
    check_limit(
        limits,
        &[layer(), layer()],
        "layer layer-2, byte 1024: more than 3 entries",
    );
    let stage = Stage::new();
    stage
        .unpack_within(limits, &[layer(), tar([file("a", "")])])
        .expect("three are allowed");
}

#[test]
fn extension_headers_count_as_entries() {
    let limits = Limits {
        entries: 100,
        ..Limits::default()
    };
    let stage = Stage::new();
    let mut unpacker = Unpacker::new(&stage.root(), limits).expect("an empty folder");
    let mut header = file("pax", "");
    header.typeflag = b'x';
    let error = unpacker
        .layer("endless", repeated(&header, u64::MAX))
        .expect_err("it never ends");
    assert!(
        error.to_string().contains("more than 100 entries"),
        "{error}"
    );
}

#[test]
fn a_million_headers_without_work_are_read_in_seconds() {
    let stage = Stage::new();
    let mut unpacker = Unpacker::new(&stage.root(), Limits::default()).expect("an empty folder");
    let start = Instant::now();
    let summary = unpacker
        .layer("many", repeated(&folder("d"), 1_000_000))
        .expect("one folder, again and again");
    assert_eq!(summary.folders, 1_000_000);
    assert_eq!(unpacker.finish().expect("sound").names, 1);
    // Far from what it takes, far below what work for each header would take.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
#[ignore = "makes a million files"]
fn a_million_files_are_made_and_whited_out() {
    let stage = Stage::new();
    let mut unpacker = Unpacker::new(&stage.root(), Limits::default()).expect("an empty folder");
    let mut archive = Vec::new();
    for index in 0..1_000_000 {
        file(format!("d{}/{index}", index % 1000), "").write(&mut archive);
    }
    unpacker.layer("many", archive.as_slice()).expect("sound");
    unpacker
        .layer("none", tar([file(".wh..wh..opq", "")]).as_slice())
        .expect("sound");
    assert_eq!(unpacker.finish().expect("sound").names, 0);
}

#[test]
fn too_many_bytes_are_an_error_before_they_are_written() {
    let limits = Limits {
        bytes: 4096,
        ..Limits::default()
    };
    check_limit(
        limits,
        &[tar([file("a", vec![1; 4096])])],
        "more than 4096 bytes",
    );
    check_limit(
        limits,
        &[tar([file("a", "x").size(1 << 40)])],
        "more than 4096 bytes",
    );
    check_limit(
        limits,
        &[
            tar([file("a", vec![1; 1024])]),
            tar([file("b", vec![1; 1024])]),
        ],
        "layer layer-2",
    );
    // Bytes behind the end mark count as well.
    let mut long = tar([file("a", "x")]);
    long.resize(1 << 20, 0);
    check_limit(limits, &[long], "more than 4096 bytes");
}

#[test]
fn a_huge_sparse_file_makes_no_work() {
    // 1 TiB of hole and one byte: allowed, made in an instant, and as small as it is.
    let sparse = |size: u64| {
        file("s", "x")
            .pax("GNU.sparse.major", "0")
            .pax("GNU.sparse.minor", "1")
            .pax("GNU.sparse.name", "s")
            .pax("GNU.sparse.size", size.to_string())
            .pax("GNU.sparse.map", "5,1")
    };
    let stage = Stage::new();
    stage
        .unpack(&[tar([sparse(1 << 40)])])
        .expect("within the limit");
    let meta = std::fs::metadata(stage.root().join("s")).expect("made");
    assert_eq!(meta.len(), 1 << 40);
    assert!(std::os::unix::fs::MetadataExt::blocks(&meta) < 1024);
    for size in [(4 << 40) + 1, 1 << 62, i64::MAX as u64, u64::MAX] {
        check_limit(
            Limits::default(),
            &[tar([sparse(size)])],
            "bytes in one file",
        );
    }
}

#[test]
fn a_huge_declared_size_makes_no_work() {
    check_limit(
        Limits::default(),
        &[tar([file("a", "x").size(1 << 60)])],
        "bytes in one file",
    );
    check_refused(&[tar([file("a", "x").size(1 << 30)])], "ends inside a file");
    let all_ones = file("a", "x").patch(124, [0xff; 12]);
    check_refused(&[tar([all_ones])], "negative");
    let largest = file("a", "x").patch(124, octal(u64::MAX >> 1, 12));
    check_limit(Limits::default(), &[tar([largest])], "bytes in one file");
    // The size of a type without data is not believed, and the next header is where it should be.
    let stage = Stage::new();
    stage
        .unpack(&[tar([
            folder("d").size(1 << 50),
            symlink("l", "x").size(77),
            file("a", "1"),
        ])])
        .expect("sound for everybody else");
    assert_eq!(stage.listing(), "a 644 \"1\"\nd/ 755\nl -> x\n");
}

#[test]
fn folders_inside_each_other_have_a_bound() {
    let deep = |count| tar([file(format!("{}x", "d/".repeat(count)), "1")]);
    Stage::new().unpack(&[deep(500)]).expect("within the limit");
    check_limit(Limits::default(), &[deep(600)], "more than 512 folders");
    // Each link lets a path begin where the last one ended.
    let mut chain = vec![symlink("l", "d/".repeat(500))];
    for index in 0..4 {
        chain.push(folder("l/e"));
        chain.push(symlink(
            format!("m{index}"),
            format!("l/{}", "d/".repeat(400)),
        ));
        chain.push(file(format!("m{index}/{}x", "f/".repeat(900)), ""));
    }
    check_limit(Limits::default(), &[tar(chain)], "more than 512 folders");
}

#[test]
fn names_longer_than_linux_allows_are_refused() {
    check_refused(&[tar([file("a".repeat(256), "")])], "255 bytes");
    check_refused(&[tar([file("a/".repeat(2100), "")])], "4095 bytes");
    check_refused(&[tar([symlink("a", "b".repeat(4096))])], "4095 bytes");
    check_refused(&[tar([symlink("a", "")])], "link to nothing");
}
