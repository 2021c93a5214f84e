//! Sound archives with random damage: whatever comes of it, no panic and nothing outside.
//!
//! The same entry point as the fuzz target `unpack`, for every test run.

use longshore_image::Limits;
use proptest::prelude::*;

use crate::stage::Stage;
use crate::tar_writer::{file, folder, hard_link, octal, other, seal, symlink, tar};

/// Something of everything.
fn sample() -> Vec<u8> {
    let mut old_sparse = file("s", "xy").gnu();
    old_sparse.typeflag = b'S';
    old_sparse = old_sparse
        .patch(386, octal(0, 12))
        .patch(398, octal(2, 12))
        .patch(483, octal(4096, 12));
    let mut long = other(b'L', "././@LongLink").gnu();
    long.data = b"d/long\0".to_vec();
    tar([
        folder("d/").mode(0o700),
        file("d/a", vec![7; 700]),
        symlink("l", "d"),
        file("l/b", "1")
            .pax("mtime", "1.5")
            .pax("SCHILY.xattr.user.x", "y"),
        hard_link("h", "d/a"),
        long,
        file("x", "2"),
        old_sparse,
        file("p", "xy")
            .pax("GNU.sparse.name", "p")
            .pax("GNU.sparse.size", "9")
            .pax("GNU.sparse.map", "0,1,5,1"),
        file("d/.wh.a", ""),
        file(".wh..wh..opq", ""),
        other(b'3', "dev"),
        other(b'6', "pipe"),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_archives_neither_panic_nor_leave_the_root(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
        seals in any::<bool>(),
        twice in any::<bool>(),
    ) {
        let mut archive = sample();
        for (at, byte) in damage {
            let at = at.index(archive.len());
            archive[at] = byte;
            // With a right checksum the damage gets past the first check.
            let block = at / 512 * 512;
            if seals && block + 512 <= archive.len() {
                let header: &mut [u8; 512] =
                    (&mut archive[block..block + 512]).try_into().expect("512 bytes");
                if header[257..262] == *b"ustar" {
                    seal(header);
                }
            }
        }
        if let Some(cut) = cut {
            archive.truncate(cut.index(archive.len()));
        }
        let limits = Limits { file_bytes: 1 << 20, bytes: 1 << 20, ..Limits::default() };
        let layers = if twice { vec![archive.clone(), archive] } else { vec![archive] };
        let stage = Stage::new();
        // The canary is checked in there.
        let _ = stage.unpack_within(limits, &layers);
    }
}
