//! Workloads that turn a target into samples.
//!
//! A workload takes the settings of a study and measures its variants, one at a time; it keeps no
//! statistics and prints nothing. [`build`] makes the one that a study names.

mod host_image;
mod loopback_registry;
mod process;
mod words;
mod workloads;

use std::path::Path;

use longshore_host::Session;
use longshore_study::{Study, Workload, WorkloadError, WorkloadKind};
use thiserror::Error;

pub use workloads::start::{KNOWN_RUNTIMES, KnownRuntime, known_runtime};

/// The kinds of workload that a study file may name.
pub const KINDS: &[WorkloadKind] = &[
    WorkloadKind {
        name: "command",
        keys: workloads::command::KEYS,
    },
    WorkloadKind {
        name: "start",
        keys: workloads::start::KEYS,
    },
    WorkloadKind {
        name: "parity",
        keys: workloads::parity::KEYS,
    },
];

/// What a workload gets from the binary.
#[derive(Clone, Copy)]
pub struct Bench<'b> {
    /// The caller.
    pub session: &'b Session,
    /// The `longshore` program that starts containers.
    pub longshore: &'b Path,
    /// An empty folder for whatever has to be made, removed by the caller.
    pub work: &'b Path,
    /// Takes a line about what is being made.
    pub tell: &'b dyn Fn(&str),
}

/// A workload could not be set up.
#[derive(Debug, Error)]
pub enum SetupError {
    /// A setting of the study makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The machine refuses what every workload needs.
    #[error(transparent)]
    Machine(#[from] WorkloadError),
}

/// Makes the workload that a study names.
///
/// # Errors
///
/// [`SetupError::Setting`] where its settings make no sense.
pub fn build<'b>(study: &Study, bench: Bench<'b>) -> Result<Box<dyn Workload + 'b>, SetupError> {
    Ok(match study.workload.kind.as_str() {
        "command" => Box::new(workloads::command::CommandWorkload::new(study, &bench)?),
        "start" => Box::new(workloads::start::StartWorkload::new(study, &bench)?),
        "parity" => Box::new(workloads::parity::ParityWorkload::new(study, bench)?),
        other => {
            return Err(SetupError::Setting(format!(
                "there is no workload `{other}`"
            )));
        }
    })
}
