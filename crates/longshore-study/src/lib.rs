//! Samples, statistics, verdicts and reports of side-by-side studies.
//!
//! A study is one workload in several variants, measured in interleaved rounds. This crate reads the
//! study file ([`Study`]), decides what is run ([`Plan`]), writes down every sample as it is taken
//! ([`ResultFolder`]), and makes the [`Report`] from the samples, as often as wanted. It measures
//! nothing itself: the binary hands it a [`Workload`].
//!
//! There are always two verdicts: whether a number is a measurement ([`Validity`]), and only then
//! whether it is good enough ([`Judgement`]).

mod folder;
mod plan;
mod quantity;
pub mod render;
mod report;
mod run;
mod sample;
mod statistics;
mod study;
mod verdict;
mod workload;

pub use folder::{FolderError, Journal, ResultFolder};
pub use plan::{Plan, PlanError, Resolvable, select};
pub use quantity::{Dimension, Quantity, QuantityError, show};
pub use report::{ExpectationReport, Figure, Quiet, Report, VariantReport, Verdict};
pub use run::{Event, RunError, run};
pub use sample::{Better, Effect, FORMAT, Metric, Probe, Record, Sample, Variant};
pub use statistics::{
    Estimate95, Summary, median, median_interval, ratio_interval, resolvable_difference, summarise,
};
pub use study::{
    Axis, Expectation, Order, RunSettings, Setting, Study, StudyError, WorkloadKind, WorkloadSpec,
    parse_duration,
};
pub use verdict::{Judgement, Validity, comparison, judge};
pub use workload::{Reading, Workload, WorkloadError};
