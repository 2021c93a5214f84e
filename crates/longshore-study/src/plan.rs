//! What a study will do, decided before anything is measured.

use std::collections::BTreeSet;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde::Serialize;
use thiserror::Error;

use crate::quantity::dimension_of;
use crate::sample::{Better, Metric, Variant};
use crate::statistics::{below, resolvable_difference, seed_for};
use crate::study::{Axis, Order, Study};

/// The variants, rounds and orders of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Name of the study.
    pub name: String,
    /// Variants that are measured, in the order of the axes.
    pub variants: Vec<Variant>,
    /// Rounds that are made in any case.
    pub rounds: u32,
    /// Seconds after which no further round begins.
    pub budget_s: f64,
    /// Seed of orders and intervals.
    pub seed: u64,
    /// Measurements, warm-up included.
    pub measurements: u64,
    /// Smallest difference that the rounds can show, for runs that scatter by 2, 5 and 10 %.
    pub resolvable: Vec<Resolvable>,
    #[serde(skip)]
    order: Order,
}

/// What can be told apart at one scatter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Resolvable {
    /// Scatter of single runs: standard deviation over mean.
    pub cv: f64,
    /// Smallest relative difference of two medians that shows.
    pub difference: f64,
}

/// A study that cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The exclusions leave nothing.
    #[error("every variant is excluded")]
    NothingLeft,
    /// An expectation is about a metric that the workload has not.
    #[error("the workload `{kind}` has no metric `{metric}`; it has `{known}`")]
    NoSuchMetric {
        /// Kind of the workload.
        kind: String,
        /// What was asked for.
        metric: String,
        /// What there is.
        known: String,
    },
    /// An expected value has the wrong unit.
    #[error("`{value}` is in {found}, but `{metric}` is in {wanted}")]
    WrongUnit {
        /// The expected value as written.
        value: String,
        /// Its unit.
        found: String,
        /// The metric.
        metric: String,
        /// Its unit.
        wanted: String,
    },
    /// The tolerance would let better values pass instead of worse ones.
    #[error("tolerance {tolerance:+} % of `{metric}` is on the wrong side: {better} is better")]
    WrongSide {
        /// The metric.
        metric: String,
        /// The tolerance in per cent.
        tolerance: String,
        /// `lower` or `higher`.
        better: &'static str,
    },
    /// `--set` names an axis or label that is not there.
    #[error("{0}")]
    Selection(String),
}

impl Plan {
    /// Plans a study of a workload that measures `metrics`.
    ///
    /// # Errors
    ///
    /// [`PlanError`] where the study asks for what the workload cannot give.
    pub fn new(study: &Study, metrics: &[Metric]) -> Result<Plan, PlanError> {
        check_expectations(study, metrics)?;
        let variants: Vec<Variant> = product(&study.axes)
            .into_iter()
            .filter(|variant| {
                !study
                    .exclude
                    .iter()
                    .any(|left_out| variant.matches(left_out))
            })
            .collect();
        if variants.is_empty() {
            return Err(PlanError::NothingLeft);
        }
        let rounds = study.run.rounds;
        Ok(Plan {
            name: study.name.clone(),
            rounds,
            budget_s: study.run.budget.as_secs_f64(),
            seed: study.run.seed,
            measurements: variants.len() as u64 * (u64::from(rounds) + 1),
            variants,
            resolvable: [0.02, 0.05, 0.10]
                .map(|cv| Resolvable {
                    cv,
                    difference: resolvable_difference(cv, rounds),
                })
                .to_vec(),
            order: study.run.order,
        })
    }

    /// The order of the variants in a round, as indexes; the same for the same seed.
    pub fn order(&self, round: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        if self.order == Order::Interleaved {
            let mut generator =
                Xoshiro256PlusPlus::seed_from_u64(seed_for(self.seed, &format!("round {round}")));
            // Fisher and Yates: every order is as likely as any other.
            for last in (1..order.len()).rev() {
                order.swap(last, below(&mut generator, last + 1));
            }
        }
        order
    }
}

/// Keeps only `labels` of `axis` (`--set axis=label,label`).
///
/// # Errors
///
/// [`PlanError::Selection`] names the axes or labels that there are.
pub fn select(study: &mut Study, axis: &str, labels: &[&str]) -> Result<(), PlanError> {
    let names: Vec<&str> = study.axes.iter().map(|axis| axis.name.as_str()).collect();
    let missing = format!(
        "study `{}` has no axis `{axis}`; it has `{}`",
        study.name,
        names.join("`, `")
    );
    let axis = study
        .axes
        .iter_mut()
        .find(|known| known.name == axis)
        .ok_or(PlanError::Selection(missing))?;
    for label in labels {
        if axis.value(label).is_none() {
            let known: Vec<&str> = axis.values.iter().map(|value| value.0.as_str()).collect();
            return Err(PlanError::Selection(format!(
                "axis `{}` has no label `{label}`; it has `{}`",
                axis.name,
                known.join("`, `")
            )));
        }
    }
    axis.values
        .retain(|(label, _)| labels.contains(&label.as_str()));
    Ok(())
}

fn product(axes: &[Axis]) -> Vec<Variant> {
    let mut variants = vec![Variant::default()];
    for axis in axes {
        variants = variants
            .iter()
            .flat_map(|variant| {
                axis.values.iter().map(|(label, _)| {
                    let mut longer = variant.clone();
                    longer.0.push((axis.name.clone(), label.clone()));
                    longer
                })
            })
            .collect();
    }
    variants
}

fn check_expectations(study: &Study, metrics: &[Metric]) -> Result<(), PlanError> {
    for expectation in &study.expectations {
        let Some(metric) = metrics.iter().find(|m| m.name == expectation.metric) else {
            let known: BTreeSet<&str> = metrics.iter().map(|m| m.name.as_str()).collect();
            return Err(PlanError::NoSuchMetric {
                kind: study.workload.kind.clone(),
                metric: expectation.metric.clone(),
                known: known.into_iter().collect::<Vec<_>>().join("`, `"),
            });
        };
        let wanted = match &expectation.relative_to {
            Some(_) => "1",
            None => metric.unit.as_str(),
        };
        let dimension = expectation.value.dimension;
        if dimension_of(wanted).is_ok_and(|wanted| wanted != dimension) {
            return Err(PlanError::WrongUnit {
                value: expectation.value_text.clone(),
                found: dimension.to_string(),
                metric: metric.name.clone(),
                wanted: wanted.to_owned(),
            });
        }
        let (wrong, better) = match metric.better {
            Better::Lower => (expectation.tolerance < 0.0, "lower"),
            Better::Higher => (expectation.tolerance > 0.0, "higher"),
        };
        if wrong {
            return Err(PlanError::WrongSide {
                metric: metric.name.clone(),
                tolerance: format!("{:+}", expectation.tolerance * 100.0),
                better,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::WorkloadKind;

    const KINDS: &[WorkloadKind] = &[WorkloadKind {
        name: "fake",
        keys: &[],
    }];

    fn study(more: &str) -> Study {
        let text = format!(
            "[study]\nname = \"s\"\nquestion = \"?\"\n[workload]\nkind = \"fake\"\n\
             [axes]\na = [\"x\", \"y\"]\nb = [1, 2, 3]\n{more}"
        );
        Study::parse("s.toml", &text, KINDS).expect("is right")
    }

    fn metrics() -> Vec<Metric> {
        vec![Metric {
            name: "wall".into(),
            unit: "s".into(),
            better: Better::Lower,
            title: "time".into(),
        }]
    }

    #[test]
    fn the_variants_are_the_product_of_the_axes_less_the_exclusions() {
        let plan =
            Plan::new(&study("exclude = [{ a = \"y\", b = 2 }]"), &metrics()).expect("plans");
        let names: Vec<String> = plan.variants.iter().map(Variant::to_string).collect();
        assert_eq!(
            names,
            ["a=x b=1", "a=x b=2", "a=x b=3", "a=y b=1", "a=y b=3"]
        );
        assert_eq!(plan.measurements, 5 * 8);
    }

    #[test]
    fn every_round_measures_each_variant_once_in_an_order_that_can_be_repeated() {
        let plan = Plan::new(&study(""), &metrics()).expect("plans");
        let orders: Vec<Vec<usize>> = (1..=7).map(|round| plan.order(round)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]));
        let again = Plan::new(&study(""), &metrics()).expect("plans");
        assert_eq!(again.order(3), orders[2]);
    }

    #[test]
    fn an_expectation_that_the_workload_cannot_meet_is_refused() {
        let expect = |body: &str| {
            let study = study(&format!("[[expect]]\n{body}"));
            Plan::new(&study, &metrics())
                .expect_err("is wrong")
                .to_string()
        };
        assert!(expect("metric = \"speed\"\nvalue = \"1\"").contains("has no metric `speed`"));
        assert!(expect("metric = \"wall\"\nvalue = \"3 MiB\"").contains("is in B"));
        assert!(
            expect("metric = \"wall\"\nvalue = \"3 s\"\ntolerance = \"-5 %\"")
                .contains("lower is better")
        );
        assert!(
            expect("metric = \"wall\"\nvalue = \"3 s\"\nrelative_to = { a = \"x\" }")
                .contains("is in s")
        );
    }

    #[test]
    fn an_axis_can_be_narrowed_but_not_to_what_it_has_not() {
        let mut narrowed = study("");
        select(&mut narrowed, "b", &["1", "3"]).expect("has both");
        assert_eq!(
            Plan::new(&narrowed, &metrics())
                .expect("plans")
                .variants
                .len(),
            4
        );
        let error = select(&mut narrowed, "b", &["2"]).expect_err("is gone");
        assert!(error.to_string().contains("it has `1`, `3`"));
        assert!(select(&mut narrowed, "c", &["2"]).is_err());
    }
}
