//! Advisory locks between processes, one a digest.
//!
//! A lock is a flock(2) on a file of its own, so it ends with its holder, however that ends. Whoever
//! removes a lock file holds it exclusively; whoever gets a lock checks that the file still has a name.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fstat, futimens};
use rustix::io::{Errno, FdFlags};

use crate::error::{ErrorKind, ImageError};
use crate::progress::{Event, Progress};

/// Who else may hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Others that only use the thing.
    WithUsers,
    /// Nobody.
    WithNobody,
}

/// A held lock; it ends when the last copy of its descriptor is closed.
#[derive(Debug)]
pub struct Lock {
    file: OwnedFd,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock, waiting for its holder and saying so.
    pub(crate) fn take(
        path: &Path,
        share: Share,
        what: &str,
        progress: &dyn Progress,
    ) -> Result<Lock, ImageError> {
        let mut told = false;
        loop {
            let file = open(path)?;
            let waiting = || {
                if !told {
                    progress.event(Event::Waiting { what: what.into() });
                }
            };
            if flock(&file, share, Patience::None, path)?.is_none() {
                waiting();
                told = true;
                flock(&file, share, Patience::Endless, path)?;
            }
            if has_name(&file) {
                return Ok(Lock {
                    file,
                    path: path.to_owned(),
                });
            }
        }
    }

    /// Takes the lock if nobody is in the way.
    pub(crate) fn try_take(path: &Path, share: Share) -> Result<Option<Lock>, ImageError> {
        loop {
            let file = open(path)?;
            if flock(&file, share, Patience::None, path)?.is_none() {
                return Ok(None);
            }
            if has_name(&file) {
                return Ok(Some(Lock {
                    file,
                    path: path.to_owned(),
                }));
            }
        }
    }

    /// Lets other users in. Another process may come first for a moment and change things.
    pub(crate) fn share(&self) -> Result<(), ImageError> {
        flock(&self.file, Share::WithUsers, Patience::Endless, &self.path).map(|_| ())
    }

    /// Notes the time of use, for `cache clean --days`.
    pub(crate) fn touch(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        // A store that cannot be written has no use for the time.
        let _ = futimens(
            &self.file,
            &Timestamps {
                last_access: now,
                last_modification: now,
            },
        );
    }

    /// Removes the lock file; only for a lock that is shared with nobody.
    pub(crate) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Keeps the lock over `execve`: the program that replaces this one then holds it until it and
    /// its children that inherit the descriptor have ended. The descriptor gets a number that is out
    /// of the way of scripts, which write `exec 3> file` and mean one of their own.
    ///
    /// # Errors
    ///
    /// The descriptor's flags could not be changed.
    pub fn keep_over_exec(&mut self) -> io::Result<()> {
        self.file = rustix::io::fcntl_dupfd_cloexec(&self.file, 100)?;
        Ok(rustix::io::fcntl_setfd(&self.file, FdFlags::empty())?)
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

enum Patience {
    None,
    Endless,
}

fn open(path: &Path) -> Result<OwnedFd, ImageError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        // A store that an administrator filled can be used, and locked, without writing.
        Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
                ImageError::new(
                    ErrorKind::ReadOnly,
                    format!(
                        "cannot make the lock {}: the store is read-only",
                        path.display()
                    ),
                )
                .hint("set LONGSHORE_CACHEDIR to a folder that you can write")
                .because(io::Error::from(error))
            })
        }
        Err(error) => Err(ImageError::io("open the lock", path, error)),
        Ok(file) => Ok(file),
    }
}

fn flock(
    file: &OwnedFd,
    share: Share,
    patience: Patience,
    path: &Path,
) -> Result<Option<()>, ImageError> {
    let operation = match (share, patience) {
        (Share::WithUsers, Patience::None) => FlockOperation::NonBlockingLockShared,
        (Share::WithUsers, Patience::Endless) => FlockOperation::LockShared,
        (Share::WithNobody, Patience::None) => FlockOperation::NonBlockingLockExclusive,
        (Share::WithNobody, Patience::Endless) => FlockOperation::LockExclusive,
    };
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(Some(())),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error @ (Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP)) => {
                return Err(ImageError::new(
                    ErrorKind::Io,
                    format!("the file system of {} has no locks", path.display()),
                )
                .hint("put the cache on a local disk with LONGSHORE_CACHEDIR, or ask for the mount option `flock`")
                .because(io::Error::from(error)));
            }
            Err(error) => return Err(ImageError::io("lock", path, error)),
        }
    }
}

fn has_name(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_nlink > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn users_share_and_a_remover_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let one = Lock::try_take(&path, Share::WithUsers).expect("locks work");
        let two = Lock::try_take(&path, Share::WithUsers).expect("locks work");
        assert!(one.is_some() && two.is_some());
        let remover = Lock::try_take(&path, Share::WithNobody).expect("locks work");
        assert!(remover.is_none());
        drop((one, two));
        let remover = Lock::try_take(&path, Share::WithNobody).expect("locks work");
        remover.expect("nobody is left").remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_lock_whose_file_was_removed_is_taken_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let remover = Lock::try_take(&path, Share::WithNobody)
            .expect("locks work")
            .expect("free");
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| Lock::take(&path, Share::WithUsers, "the tree", &Silent).map(drop));
            remover.remove();
            waiter.join().expect("no panic").expect("locks work");
        });
        assert!(path.exists());
    }
}
