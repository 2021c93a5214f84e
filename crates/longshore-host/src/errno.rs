//! Names of error numbers, as recorded nodes and messages spell them.

use std::borrow::Cow;

use rustix::io::Errno;

const NAMES: [(&str, Errno); 91] = [
    ("EPERM", Errno::PERM),
    ("ENOENT", Errno::NOENT),
    ("ESRCH", Errno::SRCH),
    ("EINTR", Errno::INTR),
    ("EIO", Errno::IO),
    ("ENXIO", Errno::NXIO),
    ("E2BIG", Errno::TOOBIG),
    ("ENOEXEC", Errno::NOEXEC),
    ("EBADF", Errno::BADF),
    ("ECHILD", Errno::CHILD),
    ("EAGAIN", Errno::AGAIN),
    ("ENOMEM", Errno::NOMEM),
    ("EACCES", Errno::ACCESS),
    ("EFAULT", Errno::FAULT),
    ("ENOTBLK", Errno::NOTBLK),
    ("EBUSY", Errno::BUSY),
    ("EEXIST", Errno::EXIST),
    ("EXDEV", Errno::XDEV),
    ("ENODEV", Errno::NODEV),
    ("ENOTDIR", Errno::NOTDIR),
    ("EISDIR", Errno::ISDIR),
    ("EINVAL", Errno::INVAL),
    ("ENFILE", Errno::NFILE),
    ("EMFILE", Errno::MFILE),
    ("ENOTTY", Errno::NOTTY),
    ("ETXTBSY", Errno::TXTBSY),
    ("EFBIG", Errno::FBIG),
    ("ENOSPC", Errno::NOSPC),
    ("ESPIPE", Errno::SPIPE),
    ("EROFS", Errno::ROFS),
    ("EMLINK", Errno::MLINK),
    ("EPIPE", Errno::PIPE),
    ("EDOM", Errno::DOM),
    ("ERANGE", Errno::RANGE),
    ("EDEADLK", Errno::DEADLK),
    ("ENAMETOOLONG", Errno::NAMETOOLONG),
    ("ENOLCK", Errno::NOLCK),
    ("ENOSYS", Errno::NOSYS),
    ("ENOTEMPTY", Errno::NOTEMPTY),
    ("ELOOP", Errno::LOOP),
    ("ENODATA", Errno::NODATA),
    ("ETIME", Errno::TIME),
    ("ENOSTR", Errno::NOSTR),
    ("ENOLINK", Errno::NOLINK),
    ("EPROTO", Errno::PROTO),
    ("EBADMSG", Errno::BADMSG),
    ("EOVERFLOW", Errno::OVERFLOW),
    ("EILSEQ", Errno::ILSEQ),
    ("EUSERS", Errno::USERS),
    ("ENOTSOCK", Errno::NOTSOCK),
    ("EDESTADDRREQ", Errno::DESTADDRREQ),
    ("EMSGSIZE", Errno::MSGSIZE),
    ("EPROTOTYPE", Errno::PROTOTYPE),
    ("ENOPROTOOPT", Errno::NOPROTOOPT),
    ("EPROTONOSUPPORT", Errno::PROTONOSUPPORT),
    ("ESOCKTNOSUPPORT", Errno::SOCKTNOSUPPORT),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
    ("EPFNOSUPPORT", Errno::PFNOSUPPORT),
    ("EAFNOSUPPORT", Errno::AFNOSUPPORT),
    ("EADDRINUSE", Errno::ADDRINUSE),
    ("EADDRNOTAVAIL", Errno::ADDRNOTAVAIL),
    ("ENETDOWN", Errno::NETDOWN),
    ("ENETUNREACH", Errno::NETUNREACH),
    ("ENETRESET", Errno::NETRESET),
    ("ECONNABORTED", Errno::CONNABORTED),
    ("ECONNRESET", Errno::CONNRESET),
    ("ENOBUFS", Errno::NOBUFS),
    ("EISCONN", Errno::ISCONN),
    ("ENOTCONN", Errno::NOTCONN),
    ("ESHUTDOWN", Errno::SHUTDOWN),
    ("ETOOMANYREFS", Errno::TOOMANYREFS),
    ("ETIMEDOUT", Errno::TIMEDOUT),
    ("ECONNREFUSED", Errno::CONNREFUSED),
    ("EHOSTDOWN", Errno::HOSTDOWN),
    ("EHOSTUNREACH", Errno::HOSTUNREACH),
    ("EALREADY", Errno::ALREADY),
    ("EINPROGRESS", Errno::INPROGRESS),
    ("ESTALE", Errno::STALE),
    ("EREMOTEIO", Errno::REMOTEIO),
    ("EDQUOT", Errno::DQUOT),
    ("ENOMEDIUM", Errno::NOMEDIUM),
    ("EMEDIUMTYPE", Errno::MEDIUMTYPE),
    ("ECANCELED", Errno::CANCELED),
    ("ENOKEY", Errno::NOKEY),
    ("EKEYEXPIRED", Errno::KEYEXPIRED),
    ("EKEYREVOKED", Errno::KEYREVOKED),
    ("EKEYREJECTED", Errno::KEYREJECTED),
    ("EOWNERDEAD", Errno::OWNERDEAD),
    ("ENOTRECOVERABLE", Errno::NOTRECOVERABLE),
    ("ERFKILL", Errno::RFKILL),
    ("EHWPOISON", Errno::HWPOISON),
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
    name_errors(&std::io::Error::from_raw_os_error(number).to_string()).into_owned()
}

/// What Rust puts behind the kernel's words for an error.
const MARK: &str = " (os error ";

/// Writes ` (ENOSPC)` for each ` (os error 28)` in a text.
///
/// The number is what Rust's own messages carry, from however deep below they come; the name is what
/// manuals, and whoever is asked for help, know.
pub fn name_errors(text: &str) -> Cow<'_, str> {
    if !text.contains(MARK) {
        return text.into();
    }
    let mut parts = text.split(MARK);
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(')').unwrap_or(0);
        match part[..end].parse() {
            Ok(number) => {
                named.push_str(" (");
                named.push_str(&name(number));
            }
            // Not Rust's after all.
            Err(_) => {
                named.push_str(MARK);
                named.push_str(&part[..end]);
            }
        }
        named.push_str(&part[end..]);
    }
    named.into()
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

    #[test]
    fn numbers_in_a_message_become_names_and_all_else_stays() {
        for (text, expected) in [
            (
                "a: No space left on device (os error 28): b: x (os error 1)",
                "a: No space left on device (ENOSPC): b: x (EPERM)",
            ),
            (
                "Unknown error 4000 (os error 4000)",
                "Unknown error 4000 (errno 4000)",
            ),
            ("a (os error x) (os error 28", "a (os error x) (os error 28"),
            ("é (os error é)", "é (os error é)"),
            (" (os error )", " (os error )"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(name_errors(text), expected);
        }
    }
}
