//! The loader's cache, `/etc/ld.so.cache`: which libraries the host offers by soname.
//!
//! The format is that of glibc's `dl-cache.h`: since 2.2 the "new" part
//! (`glibc-ld.so.cache1.1`), alone or behind an old one.

use std::path::PathBuf;

const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;

/// The sonames and paths of the cache, for this machine's class; none where it is not understood.
///
/// Entries below `glibc-hwcaps` are left out: they serve only processors of their level.
pub(crate) fn entries(cache: &[u8]) -> Vec<(String, PathBuf)> {
    let Some(start) = cache
        .windows(NEW_MAGIC.len())
        .position(|window| window == NEW_MAGIC)
    else {
        return Vec::new();
    };
    let cache = &cache[start..];
    let Some(count) = word(cache, NEW_MAGIC.len()) else {
        return Vec::new();
    };
    // The count is only believed as far as the file reaches.
    let fitting = cache.len().saturating_sub(HEADER_BYTES) / ENTRY_BYTES;
    (0..(count as usize).min(fitting))
        .filter_map(|index| {
            let entry = HEADER_BYTES + index * ENTRY_BYTES;
            let flags = word(cache, entry)?;
            let soname = string(cache, word(cache, entry + 4)? as usize)?;
            let path = string(cache, word(cache, entry + 8)? as usize)?;
            (is_native(flags) && !path.contains("/glibc-hwcaps/"))
                .then(|| (soname.to_owned(), PathBuf::from(path)))
        })
        .collect()
}

/// Whether the flags name libraries of this program's class (`sysdeps/generic/ldconfig.h`).
fn is_native(flags: u32) -> bool {
    let class = flags & 0xff00;
    if cfg!(target_arch = "x86_64") {
        class == 0x0300
    } else if cfg!(target_arch = "aarch64") {
        class == 0x0a00
    } else {
        true
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn string(bytes: &[u8], at: usize) -> Option<&str> {
    let tail = bytes.get(at..)?;
    let end = tail.iter().take(4096).position(|&byte| byte == 0)?;
    std::str::from_utf8(&tail[..end]).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(count: u32, flags: u32) -> Vec<u8> {
        let mut bytes = NEW_MAGIC.to_vec();
        bytes.extend(count.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        let strings = (HEADER_BYTES + ENTRY_BYTES) as u32;
        for value in [flags, strings, strings + 13] {
            bytes.extend(value.to_ne_bytes());
        }
        bytes.resize(HEADER_BYTES + ENTRY_BYTES, 0);
        bytes.extend(b"libmpi.so.12\0/lib/libmpi.so.12\0");
        bytes
    }

    const NATIVE: u32 = if cfg!(target_arch = "aarch64") {
        0x0a03
    } else {
        0x0303
    };

    #[test]
    fn an_entry_is_found_behind_an_old_cache_too() {
        let mut bytes = b"ld.so-1.7.0\0old".to_vec();
        bytes.extend(cache(1, NATIVE));
        let found = entries(&bytes);
        assert_eq!(
            found,
            [(
                "libmpi.so.12".to_owned(),
                PathBuf::from("/lib/libmpi.so.12")
            )]
        );
    }

    #[test]
    fn libraries_of_another_class_and_entries_past_the_end_are_left_out() {
        assert!(entries(&cache(1, 0x0803)).is_empty());
        assert_eq!(entries(&cache(u32::MAX, NATIVE)).len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, count: u32) {
            let mut cache = cache(count, NATIVE);
            cache.extend(&bytes);
            entries(&cache);
            entries(&bytes);
            cache.truncate(bytes.len());
            entries(&cache);
        }
    }
}
