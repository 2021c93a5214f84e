//! What can go wrong between a reference and a tree, sorted as callers treat it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// The cases that some caller treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The reference or an option makes no sense as it is written.
    Reference,
    /// The registry wants other credentials, or none of ours may read this image.
    Denied,
    /// There is no such image, tag, platform or file.
    NotFound,
    /// No server answered, or it kept failing.
    Unreachable,
    /// What arrived is not what its digest promises, or is malformed.
    Corrupt,
    /// The disk is full, or would be.
    NoSpace,
    /// The store cannot be written.
    ReadOnly,
    /// The image is of a kind that is not handled.
    Unsupported,
    /// The thing is in use, or stands in the way.
    Busy,
    /// Any other failure of the system.
    Io,
}

/// A failure of this crate: what, on which object, why, and where known what to do next.
#[derive(Debug)]
pub struct ImageError {
    /// How callers may treat it.
    pub kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ImageError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> ImageError {
        ImageError {
            kind,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> ImageError {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> ImageError {
        self.source = Some(source.into());
        self
    }

    /// Sorts a failed system call on `path`; `what` completes "cannot ...".
    pub(crate) fn io(what: &str, path: &Path, error: impl Into<io::Error>) -> ImageError {
        let error = error.into();
        let message = format!("cannot {what} {}", path.display());
        let failed = match errno_of(&error) {
            Some(Errno::NOSPC | Errno::DQUOT) => ImageError::new(ErrorKind::NoSpace, message)
                .hint("free some space (`longshore cache clean`), or put the cache elsewhere with LONGSHORE_CACHEDIR"),
            Some(Errno::ROFS) => ImageError::new(ErrorKind::ReadOnly, message)
                .hint("set LONGSHORE_CACHEDIR to a folder that you can write"),
            Some(Errno::ACCESS | Errno::PERM) => ImageError::new(ErrorKind::Io, message),
            Some(Errno::NOENT) => ImageError::new(ErrorKind::NotFound, message),
            _ => ImageError::new(ErrorKind::Io, message),
        };
        failed.because(error)
    }

    /// What the user can do next, where that is known.
    pub fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// The kernel's number of an error, wherever the standard library keeps it.
pub(crate) fn errno_of(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ImageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
