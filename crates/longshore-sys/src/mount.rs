//! Attributes of mounts, set through a file descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What may not be done on a mount; attributes are only ever added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Nothing can be written through this mount.
    pub read_only: bool,
    /// Set-user-ID bits and file capabilities have no effect.
    pub no_suid: bool,
    /// Device nodes cannot be opened.
    pub no_dev: bool,
}

impl Restrictions {
    /// Whether there is anything to set.
    pub fn is_empty(self) -> bool {
        self == Restrictions::default()
    }

    fn attributes(self) -> u64 {
        let mut attributes = 0;
        for (wanted, attribute) in [
            (self.read_only, libc::MOUNT_ATTR_RDONLY),
            (self.no_suid, libc::MOUNT_ATTR_NOSUID),
            (self.no_dev, libc::MOUNT_ATTR_NODEV),
        ] {
            if wanted {
                attributes |= attribute;
            }
        }
        attributes
    }
}

/// Which mounts of a tree are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The mount itself.
    Mount,
    /// The mount and all below it.
    Tree,
}

/// Adds restrictions to the mount that `mount` is the root of (mount_setattr(2), Linux 5.12).
///
/// # Errors
///
/// `ENOSYS` before Linux 5.12; `EINVAL` where the descriptor is not the root of a mount.
pub fn restrict(mount: BorrowedFd<'_>, restrictions: Restrictions, reach: Reach) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: restrictions.attributes(),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH
        | match reach {
            Reach::Mount => 0,
            Reach::Tree => libc::AT_RECURSIVE,
        };
    // SAFETY: the path is a string that ends with NUL, and `attr` is valid for the size given.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
