//! Lower bounds from the error rates of a threshold.

use serde::{Deserialize, Serialize};

use super::band::Band;
use super::binomial::upper_limit;
use super::scores::{AuditScores, Errors};

/// How the threshold between "in" and "out" is chosen. Each rule pays for its choice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThresholdRule {
    /// The best of all thresholds, with limits that hold for every threshold at once, including
    /// thresholds between and beyond the scores.
    #[default]
    All,
    /// The best threshold on one half of the canaries, tested on the other half. The halves follow
    /// from a random permutation of the scores that the seed determines.
    Split {
        /// Seed of the permutation; choose it before the audit.
        seed: u64,
    },
    /// One threshold that was chosen before the scores were known.
    Fixed {
        /// A canary is "in" if its score is at least this.
        threshold: f64,
    },
}

impl std::fmt::Display for ThresholdRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str(
                "all thresholds: limits that hold for every order statistic of the scores at once",
            ),
            Self::Split { seed } => write!(
                f,
                "split: chosen on one half of the canaries, tested on the other (seed {seed})"
            ),
            Self::Fixed { threshold } => write!(f, "fixed in advance: {threshold}"),
        }
    }
}

/// A lower bound on ε at one threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AtThreshold {
    pub(super) epsilon_lower: f64,
    pub(super) threshold: Option<f64>,
    /// Upper limits of the two error rates.
    pub(super) miss_rate: f64,
    pub(super) false_alarm_rate: f64,
}

impl AtThreshold {
    /// Returns the bound of both inequalities of (ε, δ): `1 - β <= e^ε α + δ` and
    /// `1 - α <= e^ε β + δ`.
    fn new(threshold: Option<f64>, miss_rate: f64, false_alarm_rate: f64, delta: f64) -> Self {
        let one = |other: f64, rate: f64| {
            let hits = 1.0 - other - delta;
            if hits > 0.0 { ((hits / rate).ln() * (1.0 - 1e-12)).max(0.0) } else { 0.0 }
        };
        let epsilon_lower = one(miss_rate, false_alarm_rate).max(one(false_alarm_rate, miss_rate));
        Self { epsilon_lower, threshold, miss_rate, false_alarm_rate }
    }

    /// Returns the bound at a threshold that does not depend on the scores.
    fn alone(scores: &AuditScores, errors: Errors, delta: f64, significance: f64) -> Self {
        let limit =
            |count: usize, of: usize| upper_limit(count as u64, of as u64, 0.5 * significance);
        let miss_rate = limit(errors.misses, scores.included().len());
        let false_alarm_rate = limit(errors.false_alarms, scores.excluded().len());
        Self::new(errors.threshold, miss_rate, false_alarm_rate, delta)
    }
}

/// Returns the largest bound over all thresholds, from limits that hold for all of them.
pub(super) fn of_all_thresholds(
    thresholds: &[Errors],
    misses: &Band,
    false_alarms: &Band,
    delta: f64,
) -> AtThreshold {
    let bounds = thresholds.iter().map(|errors| {
        let (beta, alpha) = (misses.limit(errors.misses), false_alarms.limit(errors.false_alarms));
        AtThreshold::new(errors.threshold, beta, alpha, delta)
    });
    largest(bounds)
}

/// Returns the bound at a threshold that was fixed in advance.
pub(super) fn of_fixed_threshold(
    scores: &AuditScores,
    threshold: f64,
    delta: f64,
    significance: f64,
) -> AtThreshold {
    AtThreshold::alone(scores, scores.errors(threshold), delta, significance)
}

/// Returns the bound on one half of the canaries at the threshold that is best on the other half. A
/// list with one score leaves no half to choose from, and the bound is 0.
pub(super) fn of_split(
    scores: &AuditScores,
    seed: u64,
    delta: f64,
    significance: f64,
) -> AtThreshold {
    let nothing = AtThreshold::new(None, 1.0, 1.0, delta);
    // Not of the sorted scores: a seed would fix the tested ranks, and given the choice their
    // counts would hardly be random.
    let [included, excluded] = scores.as_given();
    let (in_choice, in_test) = halves(included, seed);
    let (out_choice, out_test) = halves(excluded, seed.wrapping_add(1));
    let halves = (AuditScores::new(in_choice, out_choice), AuditScores::new(in_test, out_test));
    let (Ok(choice), Ok(test)) = halves else { return nothing };
    let candidates = choice.thresholds().into_iter();
    let candidates =
        candidates.map(|errors| AtThreshold::alone(&choice, errors, delta, significance));
    match largest(candidates).threshold {
        Some(threshold) => of_fixed_threshold(&test, threshold, delta, significance),
        None => nothing,
    }
}

fn largest(bounds: impl Iterator<Item = AtThreshold>) -> AtThreshold {
    let none = AtThreshold::new(None, 1.0, 1.0, 0.0);
    bounds
        .fold(none, |best, next| if next.epsilon_lower > best.epsilon_lower { next } else { best })
}

/// Returns two random halves of the scores, in any order.
fn halves(scores: &[f64], seed: u64) -> (Vec<f64>, Vec<f64>) {
    // SplitMix64 and the shuffle of Fisher and Yates.
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut shuffled = scores.to_vec();
    for i in (1..shuffled.len()).rev() {
        shuffled.swap(i, ((u128::from(word()) * (i as u128 + 1)) >> 64) as usize);
    }
    let test = shuffled.split_off(shuffled.len() / 2);
    (shuffled, test)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fixed(misses: usize, false_alarms: usize, canaries: usize, delta: f64, level: f64) -> f64 {
        let list =
            |above: usize| (0..canaries).map(|i| if i < above { 1.0 } else { 0.0 }).collect();
        let scores = AuditScores::new(list(canaries - misses), list(false_alarms)).unwrap();
        of_fixed_threshold(&scores, 0.5, delta, level).epsilon_lower
    }

    #[test]
    fn bounds_at_a_fixed_threshold_equal_the_golden_table() {
        // `eps_explicit` of golden/auditing.json (jax_privacy 2.0.0), with the errors of the scores
        // at the explicit threshold: rows p030, p031, p032 and p033.
        for (misses, false_alarms, canaries, delta, expected) in [
            (15, 15, 50, 0.0, 0.216_512_551_758_081_93),
            (15, 15, 50, 1e-5, 0.216_494_498_370_854_1),
            (15, 15, 50, 0.01, 0.198_294_379_797_523_07),
            (16, 16, 100, 0.0, 1.115_819_226_009_941_5),
            (16, 16, 100, 0.01, 1.102_453_838_285_444_7),
            (201, 201, 500, 1e-5, 0.215_000_439_929_091_8),
            (67, 67, 1000, 0.0, 2.385_176_916_922_163_5),
            (55, 55, 80, 0.0, 0.0),
        ] {
            let found = fixed(misses, false_alarms, canaries, delta, 0.05);
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
    }

    #[test]
    fn both_directions_of_the_inequality_count() {
        // Many misses but no false alarm, and the mirror image.
        assert!((fixed(90, 0, 100, 0.0, 0.05) - fixed(0, 90, 100, 0.0, 0.05)).abs() < 1e-12);
    }

    #[test]
    fn a_split_uses_each_score_once_and_depends_on_the_seed() {
        let scores: Vec<f64> = (0..101).map(f64::from).collect();
        let (mut first, second) = halves(&scores, 1);
        assert_eq!((first.len(), second.len()), (50, 51));
        assert_ne!(first, halves(&scores, 2).0);
        first.extend(second);
        first.sort_by(f64::total_cmp);
        assert_eq!(first, scores);
    }

    #[test]
    fn one_canary_on_each_side_shows_nothing() {
        let scores = AuditScores::new(vec![1.0], vec![0.0]).unwrap();
        assert_eq!(of_split(&scores, 0, 0.0, 0.05).epsilon_lower, 0.0);
        assert_eq!(of_fixed_threshold(&scores, 0.5, 0.0, 0.05).epsilon_lower, 0.0);
    }
}
