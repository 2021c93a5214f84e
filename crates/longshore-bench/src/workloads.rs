//! The workloads that a study file may name; one file each.

pub(crate) mod command;
pub(crate) mod parity;
pub(crate) mod start;

use std::time::Duration;

use longshore_study::{Better, Metric, Reading, Variant, WorkloadError};

use crate::process::{Outcome, ProgramError, Programs};

/// A run that takes longer is ended.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// What is measured of a program as a whole.
pub(crate) fn program_metrics() -> Vec<Metric> {
    let metric = |name: &str, unit: &str, title: &str| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        better: Better::Lower,
        title: title.to_owned(),
    };
    vec![
        metric("wall", "s", "time from start to end"),
        metric("cpu", "s", "CPU time, user and system"),
        metric("memory", "B", "largest resident set"),
    ]
}

/// Runs a program once and makes its reading.
pub(crate) fn read_program(
    programs: &Programs,
    argv: &[String],
    wanted_status: i32,
) -> Result<Reading, WorkloadError> {
    match programs.run(argv) {
        Ok(outcome) => Ok(reading(&outcome, wanted_status)),
        Err(ProgramError::Stop(error)) => Err(error),
        Err(ProgramError::NotStarted(reason)) => Ok(Reading {
            values: vec![None; program_metrics().len()],
            output: None,
            probes: vec![longshore_study::Probe {
                probe: "start".to_owned(),
                holds: false,
                effect: longshore_study::Effect::Invalidates,
                detail: reason,
            }],
        }),
    }
}

fn reading(outcome: &Outcome, wanted_status: i32) -> Reading {
    Reading {
        values: vec![
            Some(outcome.wall.as_secs_f64()),
            Some(outcome.cpu.as_secs_f64()),
            outcome.peak_bytes.map(|bytes| bytes as f64),
        ],
        output: outcome.output.clone(),
        probes: outcome.probes(wanted_status),
    }
}

/// The label of a variant on an axis that the workload needs.
pub(crate) fn label<'v>(variant: &'v Variant, axis: &str) -> Result<&'v str, WorkloadError> {
    variant.get(axis).ok_or_else(|| WorkloadError::Broken {
        message: format!("the study has no axis `{axis}`, which its workload needs"),
    })
}
