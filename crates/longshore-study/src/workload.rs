//! What a study needs of a workload; the binary fills it with the workloads of `longshore-bench`.

use thiserror::Error;

use crate::sample::{Metric, Probe, Variant};

/// Something that can be measured, in variants.
pub trait Workload {
    /// Name of its kind.
    fn kind(&self) -> &str;

    /// What it measures; the first metric is the one that a report draws.
    fn metrics(&self) -> Vec<Metric>;

    /// What a reader needs to know of the work: heading and text, such as command lines.
    fn facts(&self) -> Vec<(String, String)>;

    /// Makes ready what `variant` needs, without being timed. The reason where this machine
    /// cannot measure it.
    ///
    /// # Errors
    ///
    /// [`WorkloadError`] where the whole study has to stop.
    fn prepare(&mut self, variant: &Variant) -> Result<Result<(), String>, WorkloadError>;

    /// Takes one sample.
    ///
    /// # Errors
    ///
    /// [`WorkloadError`] where the whole study has to stop; a failed program is a reading whose
    /// probes do not hold.
    fn measure(&mut self, variant: &Variant) -> Result<Reading, WorkloadError>;

    /// What the machine has been doing since the last call.
    fn surroundings(&mut self) -> Vec<Probe>;
}

/// The outcome of one measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// One value for each metric, in its order; nothing where none was obtained.
    pub values: Vec<Option<f64>>,
    /// Digest of what was put out, where variants must put out the same.
    pub output: Option<String>,
    /// Checks of this measurement.
    pub probes: Vec<Probe>,
}

/// A workload could not go on.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// The user or the system asked the process to end.
    #[error("stopped by signal {signal}")]
    Interrupted {
        /// Number of the signal.
        signal: i32,
    },
    /// Something that every variant needs does not work.
    #[error("{message}")]
    Broken {
        /// What and why.
        message: String,
    },
}
