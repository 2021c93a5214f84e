//! Names of error numbers, as recorded nodes and messages spell them.

use rustix::io::Errno;

const NAMES: [(&str, Errno); 24] = [
    ("EPERM", Errno::PERM),
    ("ENOENT", Errno::NOENT),
    ("EINTR", Errno::INTR),
    ("EIO", Errno::IO),
    ("ENXIO", Errno::NXIO),
    ("EAGAIN", Errno::AGAIN),
    ("ENOMEM", Errno::NOMEM),
    ("EACCES", Errno::ACCESS),
    ("EFAULT", Errno::FAULT),
    ("EBUSY", Errno::BUSY),
    ("EEXIST", Errno::EXIST),
    ("ENODEV", Errno::NODEV),
    ("ENOTDIR", Errno::NOTDIR),
    ("EINVAL", Errno::INVAL),
    ("ENFILE", Errno::NFILE),
    ("EMFILE", Errno::MFILE),
    ("ENOSPC", Errno::NOSPC),
    ("EROFS", Errno::ROFS),
    ("ELOOP", Errno::LOOP),
    ("ENOSYS", Errno::NOSYS),
    ("EOVERFLOW", Errno::OVERFLOW),
    ("EUSERS", Errno::USERS),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
    ("ESTALE", Errno::STALE),
];

/// `EPERM` for 1, and so on; `errno 77` for one that the table lacks.
pub(crate) fn name(number: i32) -> String {
    NAMES
        .iter()
        .find(|(_, errno)| errno.raw_os_error() == number)
        .map_or_else(|| format!("errno {number}"), |(name, _)| (*name).to_owned())
}

/// The number of a name that [`name`] gave.
pub(crate) fn number(name: &str) -> Option<i32> {
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, errno)| errno.raw_os_error())
        .or_else(|| name.strip_prefix("errno ")?.parse().ok())
}

/// `Operation not permitted (EPERM)`.
pub(crate) fn describe(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    format!("{words} ({})", name(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_its_name() {
        for value in 1..200 {
            assert_eq!(number(&name(value)), Some(value));
        }
        assert_eq!(describe(28), "No space left on device (ENOSPC)");
    }
}
