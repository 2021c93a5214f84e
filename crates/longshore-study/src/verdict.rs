//! The two verdicts of a study: was it a measurement, and is it fast enough.
//!
//! A tolerance without an interval is a coin: two identical variants that scatter by 10 % differ by
//! more than 5 % in half of all five-run medians. So an expectation passes or fails only where the
//! whole interval lies on one side; else more rounds are made, or nothing is claimed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::Better;
use crate::statistics::Estimate95;

/// Whether a number is a measurement of what it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "validity", rename_all = "kebab-case")]
pub enum Validity {
    /// Every probe that could invalidate it held.
    Valid,
    /// At least one did not.
    Invalid {
        /// Which, and what was found.
        reason: String,
    },
}

/// Whether a valid number is what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// The whole interval is within the tolerance.
    Pass,
    /// The whole interval is outside, on the bad side.
    Below,
    /// Better than what is believed possible.
    AboveCeiling,
    /// The interval holds both.
    Inconclusive,
    /// There is no valid number to judge.
    NotJudged,
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Validity::Valid => f.write_str("valid"),
            Validity::Invalid { reason } => write!(f, "invalid: {reason}"),
        }
    }
}

impl Judgement {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Judgement::Pass => "pass",
            Judgement::Below => "below",
            Judgement::AboveCeiling => "above ceiling",
            Judgement::Inconclusive => "inconclusive",
            Judgement::NotJudged => "not judged",
        }
    }
}

/// Judges an estimate against a limit (the expected value with its tolerance) and a ceiling.
pub fn judge(estimate: Estimate95, better: Better, limit: f64, ceiling: Option<f64>) -> Judgement {
    // Turned round where lower is better, so that the rest reads the same for both.
    let (low, high, limit, ceiling) = match better {
        Better::Higher => (estimate.low, estimate.high, limit, ceiling),
        Better::Lower => (
            -estimate.high,
            -estimate.low,
            -limit,
            ceiling.map(|value| -value),
        ),
    };
    if ceiling.is_some_and(|ceiling| low > ceiling) {
        Judgement::AboveCeiling
    } else if high < limit {
        Judgement::Below
    } else if low >= limit && ceiling.is_none_or(|ceiling| high <= ceiling) {
        Judgement::Pass
    } else {
        Judgement::Inconclusive
    }
}

/// Says in words what a comparison shows, and no more than it shows.
///
/// `ratio` is variant over reference: of times where lower is better, of rates where higher is.
pub fn comparison(ratio: Estimate95, better: Better) -> String {
    let Estimate95 { low, high, .. } = ratio;
    let range = range(low, high);
    let good = match better {
        Better::Higher => 1.0 < low,
        Better::Lower => high < 1.0,
    };
    if low <= 1.0 && 1.0 <= high {
        format!("no difference shown ({range} of it)")
    } else if good {
        format!("faster: {range} of it")
    } else {
        format!("slower: {range} of it")
    }
}

fn range(low: f64, high: f64) -> String {
    let (low, high) = (few_digits(low), few_digits(high));
    if low == high {
        format!("{low}x")
    } else {
        format!("{low}x to {high}x")
    }
}

/// Two decimals, or as many as say something.
fn few_digits(value: f64) -> String {
    match value.abs() {
        small if small < 0.1 => format!("{value:.3}"),
        middle if middle < 10.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, high: f64) -> Estimate95 {
        Estimate95 {
            value: (low + high) / 2.0,
            low,
            high,
        }
    }

    #[test]
    fn a_rate_passes_fails_or_stays_open_by_its_whole_interval() {
        let judge = |low, high| judge(estimate(low, high), Better::Higher, 95.0, Some(130.0));
        assert_eq!(judge(96.0, 110.0), Judgement::Pass);
        assert_eq!(judge(80.0, 94.0), Judgement::Below);
        assert_eq!(judge(90.0, 100.0), Judgement::Inconclusive);
        assert_eq!(judge(131.0, 140.0), Judgement::AboveCeiling);
        assert_eq!(judge(120.0, 140.0), Judgement::Inconclusive);
    }

    #[test]
    fn for_a_time_the_sides_are_turned_round() {
        let judge = |low, high| judge(estimate(low, high), Better::Lower, 1.05, Some(0.5));
        assert_eq!(judge(0.99, 1.04), Judgement::Pass);
        assert_eq!(judge(1.06, 1.2), Judgement::Below);
        assert_eq!(judge(1.0, 1.1), Judgement::Inconclusive);
        assert_eq!(judge(0.1, 0.2), Judgement::AboveCeiling);
    }

    #[test]
    fn words_claim_no_more_than_the_interval_shows() {
        let say = |low, high| comparison(estimate(low, high), Better::Lower);
        assert_eq!(
            say(0.98, 1.02),
            "no difference shown (0.98x to 1.02x of it)"
        );
        assert_eq!(say(2.0, 4.0), "slower: 2.00x to 4.00x of it");
        assert_eq!(say(0.5, 0.5), "faster: 0.50x of it");
        assert_eq!(
            comparison(estimate(1.2, 1.3), Better::Higher),
            "faster: 1.20x to 1.30x of it"
        );
    }
}
