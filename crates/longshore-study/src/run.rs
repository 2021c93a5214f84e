//! Runs a plan: warm-up, interleaved rounds, and more rounds while nothing can be told yet.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use thiserror::Error;

use crate::folder::{FolderError, Journal};
use crate::plan::Plan;
use crate::report::Report;
use crate::sample::{Effect, FORMAT, Metric, Record, Sample, Variant};
use crate::study::Study;
use crate::verdict::Judgement;
use crate::workload::{Reading, Workload, WorkloadError};

/// A study stopped before its end; what was measured is in the journal.
#[derive(Debug, Error)]
pub enum RunError {
    /// The workload could not go on, or was interrupted.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A sample could not be written down.
    #[error(transparent)]
    Journal(#[from] FolderError),
}

/// What a watcher of the run is told.
#[derive(Debug)]
pub enum Event<'e> {
    /// A variant is made ready and warmed up.
    Preparing(&'e Variant),
    /// A variant cannot be measured on this machine.
    Unavailable(&'e Variant, &'e str),
    /// The warm-up of a variant failed its probes.
    Failed(&'e Variant, &'e str),
    /// A measurement begins: round, rounds planned, share of the planned measurements done.
    Measuring {
        /// Round, from 1.
        round: u32,
        /// Rounds planned.
        rounds: u32,
        /// Variant that is measured.
        variant: &'e Variant,
        /// Measurements done.
        done: u64,
        /// Measurements planned.
        planned: u64,
    },
    /// The planned rounds do not settle this many expectations; further rounds follow.
    Extending(usize),
    /// Nothing more is measured; the reason.
    Ended(&'e str),
}

/// Runs a study to its end and leaves every sample in the journal.
///
/// # Errors
///
/// [`RunError`] where it stopped early. The journal then ends with the reason, except where it was
/// the journal that failed.
pub fn run(
    study: &Study,
    plan: &Plan,
    tool: &str,
    workload: &mut dyn Workload,
    journal: &mut Journal,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<(), RunError> {
    let begun = Instant::now();
    journal.add(Record::Study {
        format: FORMAT,
        name: study.name.clone(),
        tool: tool.to_owned(),
        seed: plan.seed,
        time: now(),
    })?;
    let outcome = Running {
        study,
        plan,
        metrics: workload.metrics(),
        workload,
        journal,
        watch,
        begun,
        live: Vec::new(),
    }
    .go();
    let reason = match &outcome {
        Ok(reason) => (*reason).to_owned(),
        Err(RunError::Journal(_)) => return outcome.map(|_| ()),
        Err(error) => error.to_string(),
    };
    journal.add(Record::End {
        reason: reason.clone(),
        wall_s: begun.elapsed().as_secs_f64(),
        time: now(),
    })?;
    watch(Event::Ended(&reason));
    outcome.map(|_| ())
}

fn now() -> String {
    Timestamp::now().to_string()
}

struct Running<'r> {
    study: &'r Study,
    plan: &'r Plan,
    metrics: Vec<Metric>,
    workload: &'r mut dyn Workload,
    journal: &'r mut Journal,
    watch: &'r mut dyn FnMut(Event<'_>),
    begun: Instant,
    /// Indexes of the variants that can be measured.
    live: Vec<usize>,
}

impl Running<'_> {
    fn go(&mut self) -> Result<&'static str, RunError> {
        for metric in &self.metrics {
            self.journal.add(Record::Metric(metric.clone()))?;
        }
        self.warm_up()?;
        for (name, text) in self.workload.facts() {
            self.journal.add(Record::Fact { name, text })?;
        }
        if self.live.is_empty() {
            return Ok("no variant can be measured here");
        }
        // What the machine did during the warm-up belongs to no round.
        self.workload.surroundings();
        let budget = Duration::try_from_secs_f64(self.plan.budget_s).unwrap_or(Duration::MAX);
        let mut round = 0;
        let mut longest = Duration::ZERO;
        while round < self.plan.rounds {
            if round > 0 && self.begun.elapsed() + longest > budget {
                return Ok("the time budget was used up before the planned rounds were made");
            }
            round += 1;
            longest = longest.max(self.round(round, &self.live.clone())?);
        }
        let mut open = self.undecided();
        if !open.is_empty() {
            (self.watch)(Event::Extending(open.len()));
        }
        while !open.is_empty() {
            if self.begun.elapsed() + longest > budget {
                return Ok("the time budget was used up with expectations still undecided");
            }
            round += 1;
            let needed = self.needed_for(&open);
            self.round(round, &needed)?;
            // The intervals cost more than a short round; ask again after every fifth.
            if round % 5 == 0 {
                open = self.undecided();
            }
        }
        Ok("all rounds made")
    }

    fn warm_up(&mut self) -> Result<(), RunError> {
        for (index, variant) in self.plan.variants.iter().enumerate() {
            (self.watch)(Event::Preparing(variant));
            if let Err(reason) = self.workload.prepare(variant)? {
                (self.watch)(Event::Unavailable(variant, &reason));
                self.journal.add(Record::Unavailable {
                    variant: variant.clone(),
                    reason,
                })?;
                continue;
            }
            let reading = self.workload.measure(variant)?;
            let failure = reading
                .probes
                .iter()
                .find(|probe| !probe.holds && probe.effect == Effect::Invalidates)
                .map(|probe| format!("{}: {}", probe.probe, probe.detail));
            write_down(
                self.journal,
                self.workload.kind(),
                &self.metrics,
                variant,
                0,
                reading,
            )?;
            match failure {
                // A program that fails once will fail again; its rounds would only cost time.
                Some(failure) => (self.watch)(Event::Failed(variant, &failure)),
                None => self.live.push(index),
            }
        }
        Ok(())
    }

    fn round(&mut self, round: u32, variants: &[usize]) -> Result<Duration, RunError> {
        let begun = Instant::now();
        let order = self.plan.order(round);
        let per_round = self.live.len() as u64;
        let before = u64::from(round - 1) * per_round;
        let measured = order.into_iter().filter(|index| variants.contains(index));
        for (done, index) in (before..).zip(measured) {
            let variant = &self.plan.variants[index];
            (self.watch)(Event::Measuring {
                round,
                rounds: self.plan.rounds,
                variant,
                done,
                planned: u64::from(self.plan.rounds) * per_round,
            });
            let reading = self.workload.measure(variant)?;
            write_down(
                self.journal,
                self.workload.kind(),
                &self.metrics,
                variant,
                round,
                reading,
            )?;
        }
        let taken = begun.elapsed();
        let probes = self.workload.surroundings();
        self.journal.add(Record::Round {
            round,
            wall_s: taken.as_secs_f64(),
            probes,
        })?;
        Ok(taken)
    }

    /// The variants and references of expectations that more rounds could settle.
    fn undecided(&self) -> Vec<(Variant, Option<Variant>)> {
        let report = Report::new(self.study, self.journal.records(), serde_json::Value::Null);
        report
            .expectations
            .into_iter()
            .filter(|expectation| expectation.judgement == Judgement::Inconclusive)
            .map(|expectation| (expectation.variant, expectation.reference))
            .collect()
    }

    fn needed_for(&self, open: &[(Variant, Option<Variant>)]) -> Vec<usize> {
        self.live
            .iter()
            .copied()
            .filter(|&index| {
                let variant = &self.plan.variants[index];
                open.iter()
                    .any(|(judged, other)| judged == variant || other.as_ref() == Some(variant))
            })
            .collect()
    }
}

fn write_down(
    journal: &mut Journal,
    kind: &str,
    metrics: &[Metric],
    variant: &Variant,
    round: u32,
    reading: Reading,
) -> Result<(), FolderError> {
    let time = now();
    for (metric, value) in metrics.iter().zip(reading.values) {
        journal.add(Record::Sample(Sample {
            workload: kind.to_owned(),
            variant: variant.clone(),
            round,
            metric: metric.name.clone(),
            unit: metric.unit.clone(),
            value: value.filter(|value| value.is_finite()),
            output: reading.output.clone(),
            probes: reading.probes.clone(),
            time: time.clone(),
        }))?;
    }
    Ok(())
}
