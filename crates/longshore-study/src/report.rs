//! The record of a study's outcome; text, Markdown, CSV, JSON and HTML are renderings of it.

use serde::Serialize;
use serde_json::Value;

use crate::quantity::show;
use crate::sample::{Better, Effect, Metric, Probe, Record, Sample, Variant};
use crate::statistics::{
    Estimate95, Summary, median_interval, ratio_interval, seed_for, summarise,
};
use crate::study::{Expectation, Study};
use crate::verdict::{Judgement, Validity, comparison, judge};

/// The outcome of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Always `report`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Name of the study.
    pub name: String,
    /// Its question.
    pub question: String,
    /// More about it.
    pub about: String,
    /// The answer in a word, from the verdicts.
    pub verdict: Verdict,
    /// The answer in sentences that claim no more than the intervals show.
    pub answer: Vec<String>,
    /// Program and version that measured.
    pub tool: String,
    /// When it began, RFC 3339.
    pub time: String,
    /// Seconds from its beginning to its end, if it came to one.
    pub wall_s: Option<f64>,
    /// Why it ended; nothing for a killed study.
    pub ended: Option<String>,
    /// Seed of orders and intervals.
    pub seed: u64,
    /// Rounds made.
    pub rounds: u32,
    /// Metrics, the drawn one first.
    pub metrics: Vec<Metric>,
    /// What ratios are taken to.
    pub reference: Option<Variant>,
    /// Variants in order.
    pub variants: Vec<VariantReport>,
    /// Expectations, one for each variant that it is about.
    pub expectations: Vec<ExpectationReport>,
    /// What the machine was doing.
    pub quiet: Quiet,
    /// What was measured: heading and text.
    pub facts: Vec<(String, String)>,
    /// The machine.
    pub host: Value,
    /// The study file.
    pub study_text: String,
    /// Every sample.
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

/// The verdict over all expectations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All expectations hold.
    Pass,
    /// At least one certainly does not.
    Below,
    /// None fails, but not all could be settled.
    Inconclusive,
    /// A number that is needed was no measurement.
    Invalid,
    /// Nothing was expected.
    NothingExpected,
}

/// One variant with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantReport {
    /// Which one.
    pub variant: Variant,
    /// Whether its numbers are measurements.
    #[serde(flatten)]
    pub validity: Validity,
    /// Remarks that do not invalidate.
    pub remarks: Vec<String>,
    /// Figures of each metric that has samples.
    pub figures: Vec<Figure>,
}

/// The statistics of one metric of one variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the metric.
    pub metric: String,
    /// Its base unit; all values are in it.
    pub unit: String,
    /// The first run, warm-up, apart.
    pub first: Option<f64>,
    /// Middle and spread.
    #[serde(flatten)]
    pub summary: Summary,
    /// Median with its interval.
    pub interval: Estimate95,
    /// Ratio to the reference with its interval.
    pub ratio: Option<Estimate95>,
    /// The ratio in words.
    pub words: Option<String>,
}

/// One expectation about one variant, with both verdicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectationReport {
    /// Which variant.
    pub variant: Variant,
    /// What it is compared with.
    pub reference: Option<Variant>,
    /// Metric.
    pub metric: String,
    /// What is expected, in words with units.
    pub expected: String,
    /// What passes just so: base unit, or a ratio.
    pub limit: f64,
    /// What was observed: base unit, or a ratio.
    pub observed: Option<Estimate95>,
    /// What was observed, with units.
    pub observed_text: String,
    /// First verdict.
    #[serde(flatten)]
    pub validity: Validity,
    /// Second verdict.
    pub judgement: Judgement,
    /// Where the expectation comes from.
    pub why: String,
}

/// Whether the machine was quiet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Quiet {
    /// Rounds with a remark.
    pub flagged_rounds: u32,
    /// Rounds made.
    pub rounds: u32,
    /// The remarks, one for each probe that did not hold: the worst round's words.
    pub remarks: Vec<String>,
}

impl Report {
    /// Makes the report of a study from its records.
    ///
    /// `host` is what is known of the machine. Works on the records of a killed study too.
    pub fn new(study: &Study, records: &[Record], host: Value) -> Report {
        let mut report = Report {
            kind: "report",
            name: study.name.clone(),
            question: study.question.clone(),
            about: study.about.clone(),
            verdict: Verdict::NothingExpected,
            answer: Vec::new(),
            tool: String::new(),
            time: String::new(),
            wall_s: None,
            ended: None,
            seed: study.run.seed,
            rounds: 0,
            metrics: Vec::new(),
            reference: study.run.reference.clone(),
            variants: Vec::new(),
            expectations: Vec::new(),
            quiet: Quiet::default(),
            facts: Vec::new(),
            host,
            study_text: study.text.clone(),
            samples: Vec::new(),
        };
        let mut unavailable = Vec::new();
        let mut order: Vec<Variant> = Vec::new();
        for record in records {
            match record {
                Record::Study {
                    tool, seed, time, ..
                } => {
                    report.tool.clone_from(tool);
                    report.time.clone_from(time);
                    report.seed = *seed;
                }
                Record::Metric(metric) => report.metrics.push(metric.clone()),
                Record::Fact { name, text } => report.facts.push((name.clone(), text.clone())),
                Record::Unavailable { variant, reason } => {
                    order.push(variant.clone());
                    unavailable.push((variant.clone(), reason.clone()));
                }
                Record::Sample(sample) => {
                    if sample.round == 0 && !order.contains(&sample.variant) {
                        order.push(sample.variant.clone());
                    }
                    report.samples.push(sample.clone());
                }
                Record::Round { round, probes, .. } => {
                    report.rounds = report.rounds.max(*round);
                    report.quiet.take_in(probes);
                }
                Record::End { reason, wall_s, .. } => {
                    report.ended = Some(reason.clone());
                    report.wall_s = Some(*wall_s);
                }
                Record::Other => {}
            }
        }
        let outputs = differing_outputs(&order, &report.samples, report.reference.as_ref());
        report.variants = order
            .iter()
            .map(|variant| {
                let missing = unavailable
                    .iter()
                    .find(|(other, _)| other == variant)
                    .map(|(_, reason)| format!("not measured: {reason}"));
                let differs = outputs
                    .iter()
                    .find(|(other, _)| other == variant)
                    .map(|(_, reason)| reason.clone());
                report.variant(variant, missing, differs)
            })
            .collect();
        report.expectations = study
            .expectations
            .iter()
            .flat_map(|expectation| report.judged(expectation))
            .collect();
        report.verdict = overall(&report.expectations);
        report.answer = report.in_words();
        report
    }

    fn values(&self, variant: &Variant, metric: &str) -> Vec<(u32, f64)> {
        self.samples
            .iter()
            .filter(|sample| {
                sample.round > 0 && sample.metric == metric && sample.variant == *variant
            })
            .filter_map(|sample| Some((sample.round, sample.value?)))
            .collect()
    }

    fn variant(
        &self,
        variant: &Variant,
        missing: Option<String>,
        differs: Option<String>,
    ) -> VariantReport {
        let own: Vec<&Sample> = self
            .samples
            .iter()
            .filter(|sample| sample.variant == *variant)
            .collect();
        let first_metric = self.metrics.first().map(|metric| metric.name.as_str());
        let per_run: Vec<&Sample> = own
            .iter()
            .copied()
            .filter(|sample| Some(sample.metric.as_str()) == first_metric)
            .collect();
        let failed = failed_probes(&per_run, Effect::Invalidates);
        let counted = per_run.iter().filter(|sample| sample.round > 0).count();
        // A program that failed also put out something else; why it failed is the better word.
        let reason = missing
            .or_else(|| failed.first().cloned())
            .or(differs)
            .or_else(|| (counted == 0).then(|| "no round was finished".to_owned()));
        VariantReport {
            variant: variant.clone(),
            validity: match reason {
                Some(reason) => Validity::Invalid { reason },
                None => Validity::Valid,
            },
            remarks: failed_probes(&per_run, Effect::Flags),
            figures: self
                .metrics
                .iter()
                .filter_map(|metric| self.figure(variant, metric, &own))
                .collect(),
        }
    }

    fn figure(&self, variant: &Variant, metric: &Metric, own: &[&Sample]) -> Option<Figure> {
        let values: Vec<f64> = self
            .values(variant, &metric.name)
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        let summary = summarise(&values)?;
        let place = format!("{variant} {}", metric.name);
        let reference = self
            .reference
            .as_ref()
            .filter(|reference| !variant.matches(reference))
            .map(|reference| variant.with(reference));
        let ratio = reference.and_then(|reference| {
            let pairs = self.pairs(variant, &reference, &metric.name);
            ratio_interval(&pairs, seed_for(self.seed, &place))
        });
        Some(Figure {
            metric: metric.name.clone(),
            unit: metric.unit.clone(),
            first: own
                .iter()
                .find(|sample| sample.round == 0 && sample.metric == metric.name)
                .and_then(|sample| sample.value),
            summary,
            interval: median_interval(&values, seed_for(self.seed, &place))?,
            ratio,
            words: ratio.map(|ratio| comparison(ratio, metric.better)),
        })
    }

    /// Values of two variants from the same rounds.
    fn pairs(&self, variant: &Variant, reference: &Variant, metric: &str) -> Vec<(f64, f64)> {
        let below = self.values(reference, metric);
        self.values(variant, metric)
            .into_iter()
            .filter_map(|(round, value)| {
                let (_, other) = below.iter().find(|(other, _)| *other == round)?;
                Some((value, *other))
            })
            .collect()
    }

    fn judged(&self, expectation: &Expectation) -> Vec<ExpectationReport> {
        let Some(metric) = self
            .metrics
            .iter()
            .find(|metric| metric.name == expectation.metric)
        else {
            return Vec::new();
        };
        self.variants
            .iter()
            .filter(|report| report.variant.matches(&expectation.when))
            .filter(|report| {
                // The reference itself is not compared with itself.
                expectation
                    .relative_to
                    .as_ref()
                    .is_none_or(|reference| !report.variant.matches(reference))
            })
            .map(|report| self.judge_one(expectation, metric, report))
            .collect()
    }

    fn judge_one(
        &self,
        expectation: &Expectation,
        metric: &Metric,
        own: &VariantReport,
    ) -> ExpectationReport {
        let reference = expectation
            .relative_to
            .as_ref()
            .map(|reference| own.variant.with(reference));
        let observed = match &reference {
            Some(reference) => ratio_interval(
                &self.pairs(&own.variant, reference, &metric.name),
                seed_for(self.seed, &format!("{} {}", own.variant, metric.name)),
            ),
            None => own
                .figures
                .iter()
                .find(|figure| figure.metric == metric.name)
                .map(|figure| figure.interval),
        };
        let validity = match (&own.validity, &reference) {
            (Validity::Valid, Some(reference)) => self
                .variants
                .iter()
                .find(|other| other.variant == *reference)
                .map_or_else(
                    || Validity::Invalid {
                        reason: format!("the reference {reference} was not measured"),
                    },
                    |other| match &other.validity {
                        Validity::Valid => Validity::Valid,
                        Validity::Invalid { reason } => Validity::Invalid {
                            reason: format!("the reference is invalid: {reason}"),
                        },
                    },
                ),
            (validity, _) => validity.clone(),
        };
        let limit = expectation.value.value * (1.0 + expectation.tolerance);
        let judgement = match (&validity, observed) {
            (Validity::Valid, Some(observed)) => judge(
                observed,
                metric.better,
                limit,
                expectation.ceiling.map(|ceiling| ceiling.value),
            ),
            _ => Judgement::NotJudged,
        };
        let relative = reference.is_some();
        let shown = move |value: f64| {
            if relative {
                format!("{value:.3}x")
            } else {
                show(value, &metric.unit)
            }
        };
        ExpectationReport {
            variant: own.variant.clone(),
            metric: metric.name.clone(),
            expected: expected_text(expectation, metric, relative, &shown),
            reference,
            limit,
            observed_text: observed.map_or_else(
                || "nothing".to_owned(),
                |observed| {
                    format!(
                        "{} ({} to {})",
                        shown(observed.value),
                        shown(observed.low),
                        shown(observed.high)
                    )
                },
            ),
            observed,
            validity,
            judgement,
            why: expectation.why.clone(),
        }
    }

    /// How a valid variant compares to its reference, in the metric that is judged, else the first.
    fn compared_in_words(&self, variant: &VariantReport) -> Option<String> {
        let judged = self
            .expectations
            .iter()
            .find(|expectation| expectation.variant == variant.variant)
            .map(|expectation| expectation.metric.as_str());
        let first = self.metrics.first()?.name.as_str();
        let metric = judged.unwrap_or(first);
        let of = |variant: &VariantReport| {
            let figure = variant.figures.iter().find(|f| f.metric == metric)?;
            Some((
                show(figure.summary.median, &figure.unit),
                figure.words.clone(),
            ))
        };
        if variant.validity != Validity::Valid {
            return None;
        }
        let (own, words) = of(variant)?;
        let reference = self.reference.as_ref()?;
        let other = variant.variant.with(reference);
        let other = self
            .variants
            .iter()
            .find(|report| report.variant == other)?;
        let name = if metric == first {
            String::new()
        } else {
            format!("{metric} ")
        };
        Some(format!(
            "{}: {name}{own} against {} for {}; {}.",
            variant.variant.labels(),
            of(other)?.0,
            reference.labels(),
            words?,
        ))
    }

    fn in_words(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let count = |judgement: Judgement| {
            self.expectations
                .iter()
                .filter(|expectation| expectation.judgement == judgement)
                .count()
        };
        let total = self.expectations.len();
        let plural = if total == 1 { "" } else { "s" };
        match self.verdict {
            Verdict::Pass if total == 1 => {
                sentences.push("Yes: the expectation is met.".to_owned());
            }
            Verdict::Pass => sentences.push(format!("Yes: all {total} expectations are met.")),
            Verdict::Below => sentences.push(format!(
                "No: {} of {total} expectation{plural} {} not met.",
                count(Judgement::Below),
                if count(Judgement::Below) == 1 { "is" } else { "are" }
            )),
            Verdict::Inconclusive => sentences.push(format!(
                "Not shown: {} of {total} expectation{plural} could not be settled.",
                total - count(Judgement::Pass)
            )),
            Verdict::Invalid => sentences.push(format!(
                "No answer: {} of {total} expectation{plural} rest{} on numbers that are no measurement.",
                count(Judgement::NotJudged),
                if count(Judgement::NotJudged) == 1 { "s" } else { "" }
            )),
            Verdict::NothingExpected => {}
        }
        for variant in &self.variants {
            sentences.extend(self.compared_in_words(variant));
        }
        if sentences.is_empty() {
            sentences.push("Measured without a reference or an expectation.".to_owned());
        }
        sentences
    }
}

impl Quiet {
    fn take_in(&mut self, probes: &[Probe]) {
        self.rounds += 1;
        let mut flagged = false;
        for probe in probes.iter().filter(|probe| !probe.holds) {
            flagged = true;
            let remark = format!("{}: {}", probe.probe, probe.detail);
            let heading = format!("{}:", probe.probe);
            // Only the first round's words are kept for each probe; the journal has them all.
            if !self.remarks.iter().any(|seen| seen.starts_with(&heading)) {
                self.remarks.push(remark);
            }
        }
        self.flagged_rounds += u32::from(flagged);
    }
}

fn expected_text(
    expectation: &Expectation,
    metric: &Metric,
    relative: bool,
    shown: &dyn Fn(f64) -> String,
) -> String {
    let side = match metric.better {
        Better::Lower => "at most",
        Better::Higher => "at least",
    };
    let limit = expectation.value.value * (1.0 + expectation.tolerance);
    let mut text = format!("{side} {}", shown(limit));
    if let Some(reference) = &expectation.relative_to
        && !reference.0.is_empty()
    {
        text.push_str(&format!(" of {}", reference.labels()));
    }
    // The arithmetic is shown where there is any.
    if expectation.tolerance != 0.0 {
        text.push_str(&format!(
            " ({} {} {} %)",
            expectation.value_text,
            if expectation.tolerance < 0.0 {
                "-"
            } else {
                "+"
            },
            expectation.tolerance.abs() * 100.0
        ));
    } else if expectation.value_text.contains(['*', '/']) {
        text.push_str(&format!(" ({})", expectation.value_text));
    }
    if let Some(ceiling) = &expectation.ceiling_text {
        let times = if relative { "x" } else { "" };
        text.push_str(&format!(", not believed beyond {ceiling}{times}"));
    }
    text
}

/// Probes that did not hold, one line for each kind: how often, and the last words.
fn failed_probes(samples: &[&Sample], effect: Effect) -> Vec<String> {
    let mut found: Vec<(String, usize, String)> = Vec::new();
    for sample in samples {
        for probe in &sample.probes {
            if probe.holds || probe.effect != effect {
                continue;
            }
            match found.iter_mut().find(|(name, ..)| *name == probe.probe) {
                Some((_, count, detail)) => {
                    *count += 1;
                    detail.clone_from(&probe.detail);
                }
                None => found.push((probe.probe.clone(), 1, probe.detail.clone())),
            }
        }
    }
    found
        .into_iter()
        .map(|(name, count, detail)| {
            format!("{name}: {detail} ({count} of {} runs)", samples.len())
        })
        .collect()
}

/// Variants whose output is not that of the others which must do the same work.
///
/// Variants that differ only in the axes of the reference are the same work.
fn differing_outputs(
    order: &[Variant],
    samples: &[Sample],
    reference: Option<&Variant>,
) -> Vec<(Variant, String)> {
    let Some(reference) = reference else {
        return Vec::new();
    };
    let outputs = |variant: &Variant| -> Vec<&String> {
        let mut outputs: Vec<&String> = samples
            .iter()
            .filter(|sample| sample.variant == *variant)
            .filter_map(|sample| sample.output.as_ref())
            .collect();
        outputs.sort_unstable();
        outputs.dedup();
        outputs
    };
    order
        .iter()
        .filter_map(|variant| {
            let own = outputs(variant);
            if own.len() > 1 {
                return Some((
                    variant.clone(),
                    "same work: its output changed from run to run".to_owned(),
                ));
            }
            let other = outputs(&variant.with(reference));
            let differs = !own.is_empty() && !other.is_empty() && own != other;
            differs.then(|| {
                (
                    variant.clone(),
                    format!(
                        "same work: its output is not that of {}",
                        reference.labels()
                    ),
                )
            })
        })
        .collect()
}

fn overall(expectations: &[ExpectationReport]) -> Verdict {
    let any = |judgement: Judgement| {
        expectations
            .iter()
            .any(|expectation| expectation.judgement == judgement)
    };
    if expectations.is_empty() {
        Verdict::NothingExpected
    } else if any(Judgement::Below) {
        Verdict::Below
    } else if any(Judgement::NotJudged) {
        Verdict::Invalid
    } else if any(Judgement::Inconclusive) || any(Judgement::AboveCeiling) {
        Verdict::Inconclusive
    } else {
        Verdict::Pass
    }
}

#[cfg(test)]
mod tests;
