//! Keeps two containers from writing to one overlay directory at the same time.
//!
//! The kernel allows it and promises nothing about what is in the directory afterwards (overlayfs,
//! "Sharing and copying layers"). The lock is a flock(2) on the file `lock` beside `upper` and `work`:
//! it ends with the last process that has the descriptor. A lock on the directory itself would leave
//! no file behind, but the program inherits the descriptor, and from that of a directory outside of
//! its root it could walk to every other (`openat(3, "../..")`).

use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, FdFlags};

use crate::plan::{Root, RunPlan, Upper};

use super::{StartError, failed, failed_with_hint};

/// The lowest number of the descriptor that the program inherits.
const HIGH: i32 = 100;

/// Takes the lock of the directory that the plan writes to, if it writes to one. The program
/// inherits it, so that what it leaves running in the background holds it too.
pub(super) fn lock(plan: &RunPlan) -> Result<Option<OwnedFd>, StartError> {
    let Root::Layers {
        upper: Upper::Directory { path },
        ..
    } = &plan.root
    else {
        return Ok(None);
    };
    // What is wrong with the directory is said where it is mounted.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) else {
        return Ok(None);
    };
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(&directory, "lock", flags, Mode::RUSR | Mode::WUSR) else {
        return Ok(None);
    };
    let doing = || format!("write to the overlay directory {}", path.display());
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        // A file system without locks has none to offer; few can take an overlay's writes anyway.
        Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => return Ok(None),
        Err(error) => {
            return Err(failed_with_hint("flock", doing(), |_| {
                Some(
                    "another container writes to it; use a directory for each, `:ro`, or an instance that all join"
                        .to_owned(),
                )
            })(error));
        }
    }
    // Out of the way of scripts, which write `exec 3> file` and mean a descriptor of their own.
    let kept = rustix::io::fcntl_dupfd_cloexec(&file, HIGH)
        .map_err(failed("fcntl F_DUPFD_CLOEXEC", doing()))?;
    rustix::io::fcntl_setfd(&kept, FdFlags::empty()).map_err(failed("fcntl F_SETFD", doing()))?;
    Ok(Some(kept))
}
