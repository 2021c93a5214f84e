//! The mount table: proc_pid_mountinfo(5).

use std::path::{Path, PathBuf};

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The folder of the file system that is mounted.
    pub(crate) root: PathBuf,
    /// Where it is mounted, as this process sees it.
    pub(crate) point: PathBuf,
    /// Options of this mount: `ro`, `nosuid`, `noexec`, and so on.
    pub(crate) options: Vec<String>,
    /// Kind of file system: `ext4`, `fuse.sshfs`.
    pub(crate) kind: String,
    /// Device or server.
    pub(crate) source: String,
    /// Options of the file system.
    pub(crate) super_options: Vec<String>,
}

impl Mount {
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }

    pub(crate) fn super_has(&self, option: &str) -> bool {
        self.super_options.iter().any(|known| known == option)
    }
}

/// Reads a mount table; lines that make no sense are left out.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    // The optional fields between the options and the lone hyphen vary in number.
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let mut right = right.split(' ');
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    Some(Mount {
        root: unescape(left.next()?).into(),
        point: unescape(left.next()?).into(),
        options: list(left.next()?),
        kind: right.next()?.to_owned(),
        source: unescape(right.next()?),
        super_options: right.next().map(list).unwrap_or_default(),
    })
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .filter(|digits| {
                first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
            })
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = code {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The mount that a path lies on: of the longest mount points the last, which covers the others.
pub(crate) fn of_path<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
22 27 0:21 / /proc rw,relatime shared:5 master:1 - proc proc rw
garbage
40 27 0:40 /a /home/my\\040data ro,nosuid - nfs4 server:/export rw,vers=4.2
";

    #[test]
    fn optional_fields_and_escapes_are_understood() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[1].kind, "proc");
        assert_eq!(mounts[2].point, Path::new("/home/my data"));
        assert_eq!(mounts[2].root, Path::new("/a"));
        assert!(mounts[2].has("nosuid") && mounts[2].super_has("vers=4.2"));
    }

    #[test]
    fn a_path_lies_on_the_deepest_mount() {
        let mounts = parse(TABLE);
        let kind = |path: &str| of_path(&mounts, Path::new(path)).map(|mount| mount.kind.as_str());
        assert_eq!(kind("/home/my data/x"), Some("nfs4"));
        assert_eq!(kind("/home/my"), Some("ext4"));
        assert_eq!(kind("relative"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "([0-9/a-z\\\\, -]{0,40}( - )?[a-z\\\\0-9 ]{0,20}\n){0,8}") {
            parse(&text);
        }
    }
}
