//! Layers of any bytes, unpacked beside a canary: no panic, nothing outside the root.
//!
//! The first byte says where the input is cut into layers. Run it with `TMPDIR` on a tmpfs: each
//! input makes a tree. The header's checksum is put right first, or hardly an input would get past
//! it.
#![no_main]

use std::fs;
use std::os::unix::fs::MetadataExt;

use libfuzzer_sys::fuzz_target;
use longshore_image::{Limits, Unpacker};

/// Seals whatever looks like a header.
fn seal(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512) {
        if block[257..262] == *b"ustar" {
            block[148..156].copy_from_slice(b"        ");
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, archive)) = input.split_first() else {
        return;
    };
    let mut archive = archive.to_vec();
    seal(&mut archive);
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let (root, canary) = (folder.path().join("root"), folder.path().join("canary"));
    fs::create_dir(&root).expect("own folder");
    fs::write(&canary, "chirp").expect("own folder");
    let before = fs::metadata(&canary).expect("own folder");
    let limits = Limits {
        entries: 1000,
        bytes: 1 << 20,
        file_bytes: 1 << 20,
        depth: 64,
    };
    let mut unpacker = Unpacker::new(&root, limits).expect("an empty folder");
    let cut = (usize::from(cut) * 512).min(archive.len());
    let (lower, upper) = archive.split_at(cut);
    let is_sound = unpacker.layer("lower", lower).is_ok() && unpacker.layer("upper", upper).is_ok();
    if is_sound {
        unpacker.finish().expect("a sound image settles");
    }
    let after = fs::metadata(&canary).expect("the canary lives");
    assert_eq!(fs::read(&canary).expect("the canary sings"), b"chirp");
    assert_eq!(
        (
            before.mode(),
            before.uid(),
            before.nlink(),
            before.ino(),
            before.ctime_nsec()
        ),
        (
            after.mode(),
            after.uid(),
            after.nlink(),
            after.ino(),
            after.ctime_nsec()
        ),
    );
    let beside = fs::read_dir(folder.path()).expect("own folder").count();
    assert_eq!(beside, 2, "something appeared beside the root");
});
