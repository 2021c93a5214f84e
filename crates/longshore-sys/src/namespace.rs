//! Leaving and joining namespaces.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A set of kinds of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// User and group ids, capabilities.
    pub user: bool,
    /// Mounts.
    pub mount: bool,
    /// Process ids; takes effect for children only.
    pub pid: bool,
    /// System V IPC and POSIX message queues.
    pub ipc: bool,
    /// Network devices, addresses, ports.
    pub net: bool,
    /// Host and domain name.
    pub uts: bool,
}

impl Namespaces {
    fn flags(self) -> libc::c_int {
        let mut flags = 0;
        for (wanted, flag) in [
            (self.user, libc::CLONE_NEWUSER),
            (self.mount, libc::CLONE_NEWNS),
            (self.pid, libc::CLONE_NEWPID),
            (self.ipc, libc::CLONE_NEWIPC),
            (self.net, libc::CLONE_NEWNET),
            (self.uts, libc::CLONE_NEWUTS),
        ] {
            if wanted {
                flags |= flag;
            }
        }
        flags
    }
}

/// Moves this process into new namespaces (unshare(2)).
///
/// # Errors
///
/// `EPERM` where the node forbids user namespaces or the process is in a chroot, `ENOSPC` where
/// their number is limited, `EINVAL` where this process has threads.
pub fn unshare(namespaces: Namespaces) -> io::Result<()> {
    // SAFETY: the flags exclude CLONE_FILES and CLONE_VM, so no memory or descriptor of this
    // process changes hands.
    if unsafe { libc::unshare(namespaces.flags()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Moves this process into those namespaces of another process that are named (setns(2) with a
/// pidfd, Linux 5.8).
///
/// # Errors
///
/// `EPERM` where the other process belongs to somebody else, `ESRCH` where it is gone.
pub fn join(pidfd: BorrowedFd<'_>, namespaces: Namespaces) -> io::Result<()> {
    // SAFETY: a number and a descriptor that is open for the duration of the call.
    if unsafe { libc::setns(pidfd.as_raw_fd(), namespaces.flags()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
