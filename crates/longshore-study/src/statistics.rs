//! Medians, their spread, and how sure a ratio is.
//!
//! Medians because run times have a long right tail. The interval of a ratio is the percentile
//! bootstrap (Efron 1979, "Bootstrap methods"; Efron and Tibshirani 1993, chapter 13): rounds are
//! drawn with replacement, and both variants take their value from the same round, so that a
//! machine that slows down for a while hits both alike. The draws come from a seeded generator:
//! the same samples always give the same interval.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Draws for one bootstrap interval; 2.5 % of them lie on each side.
const DRAWS: usize = 2000;

/// The middle and the spread of some samples.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Samples.
    pub count: usize,
    /// Middle value; the mean of the two middle ones for an even count.
    pub median: f64,
    /// Median absolute deviation from the median.
    pub mad: f64,
    /// Standard deviation (n - 1) over mean; zero for a single sample.
    pub cv: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
}

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Estimate95 {
    /// The estimate from all samples.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Sums up samples; `None` where there are none.
pub fn summarise(samples: &[f64]) -> Option<Summary> {
    let median = median(samples)?;
    let deviations: Vec<f64> = samples.iter().map(|value| (value - median).abs()).collect();
    let count = samples.len();
    let mean = samples.iter().sum::<f64>() / count as f64;
    let variance = if count > 1 {
        samples
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (count - 1) as f64
    } else {
        0.0
    };
    Some(Summary {
        count,
        median,
        mad: self::median(&deviations)?,
        cv: if mean == 0.0 {
            0.0
        } else {
            variance.sqrt() / mean.abs()
        },
        min: samples.iter().copied().fold(f64::INFINITY, f64::min),
        max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// The median; `None` where there are no samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    median_in_place(&mut sorted)
}

fn median_in_place(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    })
}

/// The median with its bootstrap interval.
pub fn median_interval(samples: &[f64], seed: u64) -> Option<Estimate95> {
    let value = median(samples)?;
    let mut drawn = vec![0.0; samples.len()];
    bootstrap(samples.len(), seed, value, |rounds| {
        for (to, &round) in drawn.iter_mut().zip(rounds) {
            *to = samples[round];
        }
        median_in_place(&mut drawn)
    })
}

/// The ratio of medians `variant / reference` with its bootstrap interval.
///
/// `pairs` holds one `(variant, reference)` a round. `None` where there is no pair, or where the
/// reference is zero.
pub fn ratio_interval(pairs: &[(f64, f64)], seed: u64) -> Option<Estimate95> {
    let (mut upper, mut lower): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let mut ratio = |rounds: &[usize]| {
        for (at, &round) in rounds.iter().enumerate() {
            (upper[at], lower[at]) = pairs[round];
        }
        let below = median_in_place(&mut lower)?;
        let ratio = median_in_place(&mut upper)? / below;
        ratio.is_finite().then_some(ratio)
    };
    let all: Vec<usize> = (0..pairs.len()).collect();
    let value = ratio(&all)?;
    bootstrap(pairs.len(), seed, value, ratio)
}

fn bootstrap(
    rounds: usize,
    seed: u64,
    value: f64,
    mut statistic: impl FnMut(&[usize]) -> Option<f64>,
) -> Option<Estimate95> {
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut drawn = vec![0; rounds];
    let mut outcomes = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        for index in &mut drawn {
            *index = below(&mut generator, rounds);
        }
        outcomes.extend(statistic(&drawn));
    }
    if outcomes.is_empty() {
        return None;
    }
    outcomes.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| outcomes[((outcomes.len() - 1) as f64 * share).round() as usize];
    Some(Estimate95 {
        value,
        low: at(0.025).min(value),
        high: at(0.975).max(value),
    })
}

/// A uniform index below `limit` (multiply and shift, Lemire 2019; the bias is below 2^-32).
pub(crate) fn below(generator: &mut Xoshiro256PlusPlus, limit: usize) -> usize {
    ((u128::from(generator.next_u64()) * limit as u128) >> 64) as usize
}

/// A seed for one place of a study, so that every interval has draws of its own.
pub(crate) fn seed_for(seed: u64, place: &str) -> u64 {
    // FNV-1a: stable between releases, which the standard hasher does not promise.
    place
        .bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The smallest relative difference between two medians that `rounds` rounds can show when single
/// runs scatter by `cv`.
///
/// The standard error of a median of n normal values is `sqrt(pi / 2) * sd / sqrt(n)` for large n
/// (Kenney and Keeping 1962, section 13.13); the ratio of two has `sqrt(2)` times that, and 1.96 of those
/// are half a 95 % interval.
pub fn resolvable_difference(cv: f64, rounds: u32) -> f64 {
    1.96 * (std::f64::consts::PI / 2.0).sqrt() * cv * (2.0 / f64::from(rounds.max(1))).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_outlier_moves_the_mean_but_not_the_median() {
        let summary = summarise(&[1.0, 1.1, 0.9, 1.0, 100.0]).expect("has samples");
        assert_eq!(summary.median, 1.0);
        assert!((summary.mad - 0.1).abs() < 1e-9);
        assert!(summary.cv > 1.0);
    }

    #[test]
    fn the_same_samples_give_the_same_interval() {
        let pairs: Vec<(f64, f64)> = (0..20)
            .map(|i| (1.0 + f64::from(i % 7) / 50.0, 1.0 + f64::from(i % 5) / 50.0))
            .collect();
        let first = ratio_interval(&pairs, 7).expect("has pairs");
        assert_eq!(Some(first), ratio_interval(&pairs, 7));
        assert!(first.low <= first.value && first.value <= first.high);
    }

    #[test]
    fn a_drift_that_hits_both_variants_does_not_widen_the_ratio() {
        // The machine becomes three times slower on the way; the variant is always 10 % slower.
        let pairs: Vec<(f64, f64)> = (0..15)
            .map(|round| 1.0 + f64::from(round) / 7.0)
            .map(|base| (base * 1.1, base))
            .collect();
        let ratio = ratio_interval(&pairs, 1).expect("has pairs");
        assert!((ratio.low - 1.1).abs() < 1e-9 && (ratio.high - 1.1).abs() < 1e-9);
    }

    #[test]
    fn a_zero_reference_has_no_ratio() {
        assert_eq!(ratio_interval(&[(1.0, 0.0), (1.0, 0.0)], 1), None);
        assert_eq!(ratio_interval(&[], 1), None);
    }

    #[test]
    fn the_interval_holds_the_truth_in_about_19_of_20_cases() {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut normal = || {
            // The sum of twelve uniform values is close enough to a normal one.
            (0..12)
                .map(|_| below(&mut generator, 1 << 20) as f64 / f64::from(1 << 20))
                .sum::<f64>()
                - 6.0
        };
        let mut held = 0;
        for trial in 0..200 {
            let pairs: Vec<(f64, f64)> = (0..20)
                .map(|_| (1.2 * (1.0 + 0.05 * normal()), 1.0 + 0.05 * normal()))
                .collect();
            let ratio = ratio_interval(&pairs, trial).expect("has pairs");
            held += usize::from(ratio.low <= 1.2 && 1.2 <= ratio.high);
        }
        assert!((180..=200).contains(&held), "{held} of 200 held the truth");
    }

    #[test]
    fn four_times_the_rounds_halve_what_can_be_told_apart() {
        let ratio = resolvable_difference(0.05, 10) / resolvable_difference(0.05, 40);
        assert!((ratio - 2.0).abs() < 1e-9);
    }
}
