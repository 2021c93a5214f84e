//! What went wrong, on which object, why, and what to do next; and the exit status that says so.

use std::error::Error;
use std::fmt::{self, Write as _};

/// The exit status of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u8);

/// The status of a command that did what it was asked to.
pub(crate) const DONE: Status = Status(0);

/// The few kinds of failure that the exit status tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The work failed, or the answer is no.
    Failed,
    /// The command line asks for something that makes no sense.
    Usage,
    /// Part of the work was done, or a study ended without a verdict.
    Partial,
    /// This machine cannot do it.
    HostCannot,
    /// `exec`, `run` and `shell` could not start the program.
    NotStarted,
    /// The program is there but cannot be executed.
    NotExecutable,
    /// There is no such program in the image.
    ProgramNotFound,
}

impl Kind {
    /// The exit status that tells it.
    pub(crate) fn status(self) -> Status {
        Status(match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Partial => 3,
            Kind::HostCannot => 4,
            Kind::NotStarted => 125,
            Kind::NotExecutable => 126,
            Kind::ProgramNotFound => 127,
        })
    }
}

/// A failed command, ready to be shown to its user.
#[derive(Debug)]
pub(crate) struct CommandError {
    kind: Kind,
    message: String,
    contexts: Vec<String>,
    hints: Vec<String>,
}

impl CommandError {
    /// States what failed; lower case, no full stop.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> CommandError {
        CommandError {
            kind,
            message: message.into(),
            contexts: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// Takes over a library error with the chain of its causes.
    pub(crate) fn from_error(kind: Kind, error: &dyn Error) -> CommandError {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            // Writing to a string cannot fail.
            let _ = write!(message, ": {error}");
            cause = error.source();
        }
        CommandError::new(kind, message)
    }

    /// Sorts the error anew, where a command has a status of its own for it.
    pub(crate) fn with_kind(mut self, kind: Kind) -> CommandError {
        self.kind = kind;
        self
    }

    /// Adds what was being done, as in `while starting image.sif`.
    pub(crate) fn context(mut self, context: impl Into<String>) -> CommandError {
        self.contexts.push(context.into());
        self
    }

    /// Adds what the user can do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CommandError {
        self.hints.push(hint.into());
        self
    }

    /// The exit status of the process that ends with this error.
    pub(crate) fn status(&self) -> Status {
        self.kind.status()
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for context in &self.contexts {
            write!(f, "\n  {context}")?;
        }
        for hint in &self.hints {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}
