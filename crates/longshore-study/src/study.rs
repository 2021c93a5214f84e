//! The study file: one workload, axes, rounds, a reference and expectations, in TOML.
//!
//! The file is walked by hand rather than derived, so that every mistake is shown at its place with
//! what was probably meant: a misspelt key that is silently ignored would change what is measured.

mod reader;

pub use reader::parse_duration;

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::quantity::Quantity;
use crate::sample::Variant;

/// A study as its file states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Short name, used for folders.
    pub name: String,
    /// What the study is to answer, with yes or no.
    pub question: String,
    /// More about it, for the report.
    pub about: String,
    /// What is measured.
    pub workload: WorkloadSpec,
    /// What is varied; the first axis varies slowest.
    pub axes: Vec<Axis>,
    /// Combinations that are left out.
    pub exclude: Vec<Variant>,
    /// How it is run.
    pub run: RunSettings,
    /// What is expected of the outcome.
    pub expectations: Vec<Expectation>,
    /// The text that it was read from.
    pub text: String,
}

/// The workload of a study with the settings of its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// Name of the kind.
    pub kind: String,
    /// Settings by name.
    pub settings: Vec<(String, Setting)>,
}

/// A value in a workload's settings or on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// Several texts, such as the words of a command.
    List(Vec<String>),
}

/// One thing that is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// Labels and what they stand for, in order.
    pub values: Vec<(String, Setting)>,
}

/// In which order the variants of a round are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Every round measures every variant once, in an order of its own: drift hits all alike.
    Interleaved,
    /// As written, the same in every round.
    Fixed,
}

/// How a study is run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// Rounds that are always made.
    pub rounds: u32,
    /// Order within a round.
    pub order: Order,
    /// What ratios are taken to.
    pub reference: Option<Variant>,
    /// Time after which no further round is begun, also to settle what is inconclusive.
    pub budget: Duration,
    /// Seed of orders and intervals.
    pub seed: u64,
}

/// What is expected of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Name of the metric.
    pub metric: String,
    /// Which variants it is about.
    pub when: Variant,
    /// The variant to which a ratio is expected; absolute where there is none.
    pub relative_to: Option<Variant>,
    /// Expected value: a quantity of the metric, or a ratio.
    pub value: Quantity,
    /// The expected value as written.
    pub value_text: String,
    /// How much worse may pass, as a signed fraction of the value: +0.05 where lower is better.
    pub tolerance: f64,
    /// A value better than this is not believed.
    pub ceiling: Option<Quantity>,
    /// The ceiling as written.
    pub ceiling_text: Option<String>,
    /// Where the expected value comes from.
    pub why: String,
}

/// A kind of workload that a study file may name.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadKind {
    /// Its name.
    pub name: &'static str,
    /// Keys that it takes in `[workload]` besides `kind`.
    pub keys: &'static [&'static str],
}

/// A mistake in a study file, with the line that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct StudyError {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Width of the marked text in characters.
    pub width: usize,
    /// The line itself.
    pub source_line: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for StudyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StudyError {
            file,
            line,
            column,
            message,
            ..
        } = self;
        writeln!(f, "{message}")?;
        writeln!(f, "  at {file}:{line}:{column}")?;
        writeln!(f, "  {line} | {}", self.source_line)?;
        let margin = line.to_string().len() + 3 + column - 1;
        write!(f, "  {:margin$}{}", "", "^".repeat(self.width.max(1)))
    }
}

impl StudyError {
    pub(crate) fn at(
        file: &str,
        text: &str,
        span: std::ops::Range<usize>,
        message: impl Into<String>,
    ) -> StudyError {
        let mut start = span.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let source_line = text[line_start..].lines().next().unwrap_or_default();
        let column = before[line_start..].chars().count() + 1;
        let marked = text
            .get(start..span.end.min(text.len()))
            .map_or(1, |marked| {
                marked.lines().next().unwrap_or_default().chars().count()
            });
        StudyError {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column,
            width: marked,
            source_line: source_line.to_owned(),
            message: message.into(),
        }
    }
}

impl Study {
    /// Reads a study file.
    ///
    /// `kinds` are the workloads that can be run; `file` is the name shown in errors.
    ///
    /// # Errors
    ///
    /// [`StudyError`] with the place of the first mistake.
    pub fn parse(file: &str, text: &str, kinds: &[WorkloadKind]) -> Result<Study, StudyError> {
        reader::read(file, text, kinds)
    }
}

impl WorkloadSpec {
    /// A setting by name.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.settings
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }
}

impl Setting {
    /// The words of a command: a list as it is, a text as one word.
    pub fn words(&self) -> Vec<String> {
        match self {
            Setting::List(words) => words.clone(),
            other => vec![other.to_string()],
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Text(text) => f.write_str(text),
            Setting::Number(number) => write!(f, "{number}"),
            Setting::Flag(flag) => write!(f, "{flag}"),
            Setting::List(words) => f.write_str(&words.join(" ")),
        }
    }
}

impl Axis {
    /// What `label` stands for.
    pub fn value(&self, label: &str) -> Option<&Setting> {
        self.values
            .iter()
            .find(|(name, _)| name == label)
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests;
