//! Distributions of the number of runs of a search, and draws from them.

use serde::{Deserialize, Serialize};

use crate::domain::check_positive;
use crate::error::AccountantError;
use crate::math::selection::{has_mean, negative_binomial_gamma};

/// Maximum number of runs in a draw: the probability beyond it is far below rounding.
const MOST_RUNS: u64 = 1 << 40;

/// Distribution of the number of runs of
/// [`DpEvent::RepeatAndSelect`](crate::DpEvent::RepeatAndSelect).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RunCount {
    /// Poisson distribution.
    Poisson {
        /// Expected number of runs.
        mean: f64,
    },
    /// Truncated negative binomial distribution; `shape` 1 is the geometric distribution, `shape` 0
    /// the logarithmic distribution.
    TruncatedNegativeBinomial {
        /// Expected number of runs.
        mean: f64,
        /// The shape η, larger than -1.
        shape: f64,
    },
}

impl RunCount {
    /// Returns the geometric distribution: truncated negative binomial of shape 1.
    pub fn geometric(mean: f64) -> Self {
        Self::TruncatedNegativeBinomial { mean, shape: 1.0 }
    }

    /// Returns the logarithmic distribution: truncated negative binomial of shape 0.
    pub fn logarithmic(mean: f64) -> Self {
        Self::TruncatedNegativeBinomial { mean, shape: 0.0 }
    }

    /// Returns the expected number of runs.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Poisson { mean } | Self::TruncatedNegativeBinomial { mean, .. } => mean,
        }
    }

    /// Returns the probability of `runs` runs.
    pub fn probability(&self, runs: u64) -> f64 {
        let mut masses = Masses::new(*self);
        while masses.runs < runs {
            masses.advance();
        }
        if masses.runs == runs { masses.mass } else { 0.0 }
    }

    /// Checks the parameters.
    pub(super) fn validate(&self) -> Result<(), AccountantError> {
        let (mean, shape) = match *self {
            Self::Poisson { mean } => return check_positive("mean", mean),
            Self::TruncatedNegativeBinomial { mean, shape } => (mean, shape),
        };
        if !(mean >= 1.0 && mean.is_finite()) {
            return Err(AccountantError::invalid(
                "mean",
                format!(
                    "must be at least 1 (a truncated distribution runs at least once), got {mean}"
                ),
            ));
        }
        if !(shape > -1.0 && shape.is_finite()) {
            return Err(AccountantError::invalid(
                "shape",
                format!("must be larger than -1, got {shape}"),
            ));
        }
        if !has_mean(mean, shape) {
            return Err(AccountantError::invalid(
                "mean",
                format!(
                    "must be smaller for a shape of {shape}, whose largest mean that can be \
                     computed with is exceeded by {mean}; use a shape that is further from -1"
                ),
            ));
        }
        Ok(())
    }

    /// Returns an error if the distribution function cannot be inverted: its first mass underflows,
    /// or its tail is too long.
    pub(crate) fn check_draws(&self) -> Result<(), AccountantError> {
        let mean = self.mean();
        if mean > 1e6 || Masses::new(*self).mass < 1e-290 {
            let reason = format!(
                "must be a number of runs that can be drawn, got {mean}; use at most a million, or \
                 600 with a Poisson number, or a smaller shape"
            );
            return Err(AccountantError::invalid("mean", reason));
        }
        Ok(())
    }

    /// Returns the number of runs at a uniformly random word, by inversion of the distribution
    /// function. The distribution of the result differs from the exact one by less than 1e-12 in
    /// total variation.
    pub(crate) fn quantile(&self, word: u64) -> u64 {
        // The middle of the cell, in 53 bits near 1 and below 1.
        let middle = (word as f64 + 0.5) / (u64::MAX as f64 + 1.0);
        let mut left = middle.min(1.0 - f64::EPSILON / 2.0);
        let mut masses = Masses::new(*self);
        loop {
            left -= masses.mass;
            // Masses below the rounding of the sum cannot be distinguished.
            let exhausted = masses.falls() && masses.mass < 1e-18;
            if left < 0.0 || exhausted || masses.runs >= MOST_RUNS {
                return masses.runs;
            }
            masses.advance();
        }
    }
}

/// An iterator over the probabilities.
struct Masses {
    count: RunCount,
    runs: u64,
    mass: f64,
    /// `1 - γ` of the truncated negative binomial distribution.
    rest: f64,
}

impl Masses {
    fn new(count: RunCount) -> Self {
        match count {
            RunCount::Poisson { mean } => Self { count, runs: 0, mass: (-mean).exp(), rest: 0.0 },
            RunCount::TruncatedNegativeBinomial { mean, shape } => {
                let Some(gamma) = negative_binomial_gamma(mean, shape) else {
                    return Self { count, runs: 1, mass: 1.0, rest: 0.0 };
                };
                let ln_gamma = gamma.ln();
                let first = if shape == 0.0 {
                    (1.0 - gamma) / -ln_gamma
                } else {
                    // (1-γ) η γ^η / (1 - γ^η).
                    let power = (shape * ln_gamma).exp();
                    (1.0 - gamma) * shape * power / -(shape * ln_gamma).exp_m1()
                };
                Self { count, runs: 1, mass: first, rest: 1.0 - gamma }
            }
        }
    }

    /// Returns the ratio of the next mass to this one.
    fn ratio(&self) -> f64 {
        let runs = self.runs as f64;
        match self.count {
            RunCount::Poisson { mean } => mean / (runs + 1.0),
            RunCount::TruncatedNegativeBinomial { shape, .. } => {
                self.rest * (runs + shape) / (runs + 1.0)
            }
        }
    }

    fn falls(&self) -> bool {
        self.ratio() < 1.0
    }

    fn advance(&mut self) {
        self.mass *= self.ratio();
        self.runs += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::math::random::Generator;

    const COUNTS: [RunCount; 5] = [
        RunCount::Poisson { mean: 6.0 },
        RunCount::TruncatedNegativeBinomial { mean: 10.0, shape: 1.0 },
        RunCount::TruncatedNegativeBinomial { mean: 3.9086503371292665, shape: 0.0 },
        RunCount::TruncatedNegativeBinomial { mean: 55.0, shape: 0.5 },
        RunCount::TruncatedNegativeBinomial { mean: 1.3566348942774427, shape: 5.0 },
    ];

    #[test]
    fn probabilities_add_up_to_one_and_have_the_mean() {
        for count in COUNTS {
            let masses: Vec<f64> = (0..6_000).map(|k| count.probability(k)).collect();
            let sum: f64 = masses.iter().sum();
            let mean: f64 = masses.iter().zip(0..).map(|(m, k)| m * f64::from(k)).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{count:?}: {sum}");
            assert!((mean / count.mean() - 1.0).abs() < 1e-6, "{count:?}: {mean}");
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        // Chi-squared with the rare counts in one class, on a fixed stream.
        let draws = 60_000u32;
        for (stream, count) in (0..).zip(COUNTS) {
            let mut generator = Generator::new(11, stream);
            let mut seen = [0u32; 40];
            for _ in 0..draws {
                let runs = count.quantile(generator.word()) as usize;
                let last = seen.len() - 1;
                seen[runs.min(last)] += 1;
            }
            let mut left = 1.0;
            let mut statistic = 0.0;
            let mut classes = 0;
            for (k, &n) in seen.iter().enumerate() {
                let p = if k + 1 == seen.len() { left } else { count.probability(k as u64) };
                left -= p;
                let expected = p * f64::from(draws);
                if expected > 5.0 {
                    statistic += (f64::from(n) - expected).powi(2) / expected;
                    classes += 1;
                } else {
                    assert!(f64::from(n) < 30.0, "{count:?} {k}: {n} of {expected}");
                }
            }
            // Mean `classes`, five standard deviations above.
            let limit = f64::from(classes) + 5.0 * (2.0 * f64::from(classes)).sqrt();
            assert!(statistic < limit, "{count:?}: {statistic} of {classes} classes");
        }
    }

    #[test]
    fn the_largest_poisson_number_has_its_quartiles() {
        let count = RunCount::Poisson { mean: 600.0 };
        assert!(count.check_draws().is_ok());
        let quartiles = [1u64, 2, 3].map(|quarter| count.quantile(quarter << 62));
        assert_eq!(quartiles, [583, 600, 616]);
        let sum: f64 = (0..1_200).map(|runs| count.probability(runs)).sum();
        assert!((sum - 1.0).abs() < 1e-11, "{sum}");
    }

    #[test]
    fn extreme_words_are_the_ends_of_the_distribution() {
        for count in COUNTS {
            let first = u64::from(!matches!(count, RunCount::Poisson { .. }));
            assert_eq!(count.quantile(0), first);
            let last = count.quantile(u64::MAX) as f64;
            assert!(last > 3.0 * count.mean() && last < 200.0 * count.mean() + 100.0, "{last}");
        }
        assert_eq!(RunCount::geometric(1.0).quantile(u64::MAX), 1);
    }

    #[test]
    fn named_distributions_are_the_textbook_ones() {
        let geometric = RunCount::geometric(10.0);
        let logarithmic = RunCount::logarithmic(3.908_650_337_129_266_5);
        for runs in 1..=6 {
            let k = runs as f64;
            // (1 - p)^(k - 1) p, and (1 - γ)^k / (k ln(1/γ)), both for 1/10.
            let expected = [0.1 * 0.9f64.powf(k - 1.0), 0.9f64.powf(k) / (k * 10f64.ln())];
            for (count, expected) in [geometric, logarithmic].iter().zip(expected) {
                let found = count.probability(runs);
                assert!((found / expected - 1.0).abs() < 1e-12, "{count:?} {runs}: {found}");
            }
        }
        for count in [geometric, logarithmic, RunCount::geometric(1.0)] {
            assert_eq!(count.probability(0), 0.0, "{count:?}");
        }
        assert_eq!([1, 2].map(|runs| RunCount::geometric(1.0).probability(runs)), [1.0, 0.0]);
    }

    #[test]
    fn quartiles_of_a_geometric_number_are_known() {
        // At most k runs have the probability 1 - 0.9^k.
        let quartiles =
            [1u64, 2, 3].map(|quarter| RunCount::geometric(10.0).quantile(quarter << 62));
        assert_eq!(quartiles, [3, 7, 14]);
    }

    #[test]
    fn numbers_can_be_drawn_up_to_a_million_runs_on_average() {
        let poisson = |mean| RunCount::Poisson { mean };
        for fine in [RunCount::geometric(1e6), poisson(1e-3), poisson(660.0)] {
            assert!(fine.check_draws().is_ok(), "{fine:?}");
        }
        // e^-680 is below 1e-290.
        for refused in [RunCount::geometric(1.000_001e6), poisson(680.0)] {
            assert!(refused.check_draws().is_err(), "{refused:?}");
        }
    }

    #[test]
    fn impossible_distributions_are_refused_by_name() {
        let negative_binomial = |mean, shape| RunCount::TruncatedNegativeBinomial { mean, shape };
        assert!(negative_binomial(1.0, -0.999).validate().is_ok());
        for (count, part) in [
            (RunCount::Poisson { mean: 0.0 }, "mean must be positive"),
            (RunCount::Poisson { mean: f64::INFINITY }, "mean must be"),
            (negative_binomial(0.999, 1.0), "mean must be at least 1 "),
            (negative_binomial(f64::INFINITY, 1.0), "mean must be at least 1 "),
            (negative_binomial(2.0, -1.0), "shape must be larger than -1"),
            (negative_binomial(2.0, f64::NAN), "shape must be larger than -1"),
            (negative_binomial(1e4, -0.99), "mean must be smaller for a shape of -0.99"),
        ] {
            let error = count.validate().unwrap_err().to_string();
            assert!(error.starts_with(part), "{count:?}: {error}");
        }
    }
}
