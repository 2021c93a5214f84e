//! Carries a plan out: system calls in the order of the plan, and no decisions.

mod assembly;
mod entry;
mod instance;
mod overlays;
mod start;
mod supervise;

use std::io;
use std::path::PathBuf;

use longshore_host::{Reason, Refusal};
use longshore_sys::process::{self, Fork};
use longshore_sys::signal;
use thiserror::Error;

use crate::plan::RunPlan;

pub use instance::{
    InstanceOutput, join_instance, signal_instance, start_instance, wait_for_instance,
};
pub use start::is_capability;

/// How a container ended that had to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program's own status.
    Exited(u8),
    /// The signal that ended it.
    Killed(i32),
}

/// What the user may want to hear while a container is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'t> {
    /// A default that was left out.
    Notice(&'t str),
    /// What was chosen and why.
    Detail(&'t str),
}

/// Why a container could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// A system call failed.
    #[error("cannot {doing} ({call})")]
    Call {
        /// The system call, by name.
        call: &'static str,
        /// What it was for, with the object.
        doing: String,
        /// What to do about it, where that is known.
        hint: Option<String>,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// The place where the program was to start is not there.
    #[error("there is no directory {} in the container to start in", path.display())]
    Directory {
        /// Inside.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// There is no such program.
    #[error("{program:?}: executable file not found in {place}")]
    ProgramNotFound {
        /// As it was asked for.
        program: String,
        /// Where it was looked for.
        place: String,
    },
    /// The program is there and cannot be executed.
    #[error("{program:?} cannot be executed: {reason}")]
    NotExecutable {
        /// Where it was found.
        program: String,
        /// Why.
        reason: String,
    },
    /// A word holds a zero byte, which no program can be given.
    #[error("{0} holds a zero byte")]
    ZeroByte(String),
}

impl StartError {
    /// What to do next, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            StartError::Call { hint, .. } => hint.as_deref(),
            StartError::Directory { .. } => {
                Some("`--pwd` chooses a directory, `--bind` brings one in")
            }
            _ => None,
        }
    }
}

/// Gives a failed system call its name and its object.
fn failed<E: Into<io::Error>>(
    call: &'static str,
    doing: impl Into<String>,
) -> impl FnOnce(E) -> StartError {
    let doing = doing.into();
    move |error| StartError::Call {
        call,
        doing,
        hint: None,
        source: error.into(),
    }
}

fn failed_with_hint<E: Into<io::Error>>(
    call: &'static str,
    doing: impl Into<String>,
    hint: impl FnOnce(&io::Error) -> Option<String>,
) -> impl FnOnce(E) -> StartError {
    let doing = doing.into();
    move |error| {
        let source = error.into();
        StartError::Call {
            call,
            doing,
            hint: hint(&source),
            source,
        }
    }
}

/// The refusal as a hint, unless it could only repeat what the kernel said.
fn known(refusal: &Refusal) -> Option<String> {
    (refusal.reason != Reason::Other).then(|| refusal.hint())
}

/// Starts the container of `plan`.
///
/// Without an own process namespace this process *becomes* the program and does not come back. With
/// one, it stays to pass signals on, and gives how the program ended. `tell` hears of defaults that
/// were left out. An error may also be returned in a child of the calling process, which is why
/// the caller must do nothing after it but say it and exit.
///
/// # Errors
///
/// [`StartError`] where the program could not be started.
pub fn execute(plan: &RunPlan, tell: &mut dyn FnMut(Told<'_>)) -> Result<Outcome, StartError> {
    // Held until this process, and all that it starts, has ended.
    let _lock = overlays::lock(plan)?;
    entry::enter(plan)?;
    if !plan.namespaces.pid {
        assembly::assemble(plan, tell)?;
        match start::start(plan)? {}
    }
    let mask = signal::block_all().map_err(failed("sigprocmask", "hold signals back"))?;
    let (reports, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(failed("pipe2", "make a pipe"))?;
    match process::fork().map_err(failed("fork", "make the container's first process"))? {
        Fork::Parent(child) => {
            drop(report);
            let outcome = supervise::supervise(child, supervise::Role::Outside)?;
            return Ok(supervise::reported(reports).unwrap_or(outcome));
        }
        Fork::Child => drop(reports),
    }
    supervise::die_with_parent()?;
    assembly::assemble(plan, tell)?;
    if plan.namespaces.init {
        match process::fork().map_err(failed("fork", "make the program's process"))? {
            Fork::Parent(child) => {
                let outcome = supervise::supervise(child, supervise::Role::FirstProcess)?;
                supervise::report(report, outcome)
            }
            Fork::Child => {}
        }
    }
    mask.restore()
        .map_err(failed("sigprocmask", "let signals through"))?;
    match start::start(plan)? {}
}
