//! Confidence limits of an error rate that hold for every threshold at once.

use super::binomial::{ln_mass, upper_limit};

/// Maximum number of scores for which the band is calibrated exactly, in quadratic time.
const EXACT: usize = 1_000;

/// Upper confidence limits of the rate of an error, for every threshold at once.
///
/// The error is, for example, a score of an included canary below the threshold. If k of n scores
/// are below a threshold, however it was chosen, the threshold is at most the order statistic
/// k + 1. The probability of a score below that statistic is at most the order statistic `U_(k+1)`
/// of n uniform numbers. Therefore limits `b_k` with `P[U_(k+1) > b_k for any k] <= significance`
/// hold for all thresholds.
///
/// Each `b_k` is the limit of Clopper and Pearson at one common local level. For up to 1,000
/// scores, the level is the largest that the significance allows, computed from the exact crossing
/// probability. For more, it is the significance divided by the number of order statistics in a
/// fixed grid.
pub(super) struct Band {
    /// The limit for each number of errors, increasing.
    limits: Vec<f64>,
}

impl Band {
    pub(super) fn new(scores: usize, significance: f64) -> Self {
        if scores <= EXACT {
            Self { limits: calibrated(scores, significance) }
        } else {
            Self { limits: on_a_grid(scores, significance) }
        }
    }

    /// Returns the limits of one threshold at this level.
    #[cfg(test)]
    pub(super) fn of_one_threshold(scores: usize, level: f64) -> Self {
        Self { limits: limits_at(scores, level) }
    }

    /// Returns the limit of the rate at a threshold with this number of errors.
    pub(super) fn limit(&self, errors: usize) -> f64 {
        self.limits.get(errors).copied().unwrap_or(1.0)
    }
}

fn limits_at(scores: usize, local_level: f64) -> Vec<f64> {
    let limit = |errors| upper_limit(errors as u64, scores as u64, local_level);
    (0..scores).map(limit).collect()
}

/// Returns the limits with the largest common level, up to 2%.
fn calibrated(scores: usize, significance: f64) -> Vec<f64> {
    // By the union bound, the smaller level is valid.
    let (mut low, mut high) = ((significance / scores as f64).ln(), significance.ln());
    let mut limits = limits_at(scores, low.exp());
    while high - low > 0.02 {
        let middle = 0.5 * (low + high);
        let candidate = limits_at(scores, middle.exp());
        // The rounding of the probability is far below the margin.
        if crossing_probability(&candidate) <= significance * (1.0 - 1e-6) {
            (low, limits) = (middle, candidate);
        } else {
            high = middle;
        }
    }
    limits
}

/// Returns the limits of all numbers of errors from the limits of a fixed grid, which is denser at
/// both ends.
fn on_a_grid(scores: usize, significance: f64) -> Vec<f64> {
    let mut grid = vec![0];
    let mut errors = 0;
    while errors + 1 < scores {
        let spread = (errors.min(scores - errors) as f64).sqrt();
        errors = (errors + 1 + (spread / 4.0) as usize).min(scores - 1);
        grid.push(errors);
    }
    let level = significance / grid.len() as f64;
    let mut limits = Vec::with_capacity(scores);
    for errors in grid {
        // A threshold with fewer errors is at most the same order statistic.
        limits.resize(errors + 1, upper_limit(errors as u64, scores as u64, level));
    }
    limits
}

/// Returns the probability that `U_(k+1) > limits[k]` for any k, where `U_(1) <= ... <= U_(n)` are
/// sorted independent uniform numbers.
///
/// The first crossing at k + 1 means that exactly k numbers are below `limits[k]`. Its probability
/// is the probability of the event without "first", minus the probability of an earlier first
/// crossing followed by the event. Both are binomial. Errors do not grow: an error in one term acts
/// like a crossing that did not happen, whose later terms add up to at most the same error.
fn crossing_probability(limits: &[f64]) -> f64 {
    let n = limits.len() as u64;
    let ln_factorials: Vec<f64> = (0..=n).map(|k| libm::lgamma(k as f64 + 1.0)).collect();
    let ln_above: Vec<f64> = limits.iter().map(|limit| (-limit).ln_1p()).collect();
    let mut first: Vec<f64> = Vec::with_capacity(limits.len());
    for (m, &limit) in limits.iter().enumerate() {
        let mut mass = ln_mass(n, m as u64, limit).exp();
        for (j, &earlier) in first.iter().enumerate() {
            // Of the n - j numbers above limits[j], m - j lie below limits[m].
            let (rest, between) = (limits.len() - j, m - j);
            let ln_gap = (limit - limits[j]).ln();
            let ln = ln_factorials[rest] - ln_factorials[between] - ln_factorials[rest - between]
                + between as f64 * ln_gap
                + (rest - between) as f64 * ln_above[m]
                - rest as f64 * ln_above[j];
            mass -= earlier * ln.exp();
        }
        first.push(mass.max(0.0));
    }
    first.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns uniform numbers in (0, 1) by SplitMix64.
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 * 2f64.powi(-53)
    }

    #[test]
    fn crossing_probability_of_few_scores_is_exact() {
        // One number: P[U > b]. Two: P[min > a or max > b] = 1 - (b² - (b - a)²).
        assert!((crossing_probability(&[0.9]) - 0.1).abs() < 1e-15);
        let (a, b) = (0.7f64, 0.95f64);
        let exact = 1.0 - (b * b - (b - a).powi(2));
        assert!((crossing_probability(&[a, b]) - exact).abs() < 1e-14);
    }

    #[test]
    fn band_holds_for_every_threshold_as_often_as_it_says() {
        let (n, trials) = (40, 20_000);
        let band = Band::new(n, 0.05);
        let mut state = 7;
        let mut crossed = 0;
        for _ in 0..trials {
            let mut numbers: Vec<f64> = (0..n).map(|_| uniform(&mut state)).collect();
            numbers.sort_by(f64::total_cmp);
            crossed += usize::from(numbers.iter().enumerate().any(|(k, &u)| u > band.limit(k)));
        }
        // The level is used up to 2 %; five standard deviations of the count are 154.
        let share = crossed as f64 / trials as f64;
        assert!((0.041..0.058).contains(&share), "{share}");
    }

    #[test]
    fn calibrated_limits_are_between_one_threshold_and_the_union_bound() {
        let n = 300;
        let band = Band::new(n, 0.025);
        for errors in [0, 1, 17, 150, 299] {
            let alone = upper_limit(errors as u64, n as u64, 0.025);
            let union = upper_limit(errors as u64, n as u64, 0.025 / n as f64);
            assert!(alone < band.limit(errors) && band.limit(errors) < union, "{errors}");
        }
        assert_eq!(band.limit(n), 1.0);
    }

    #[test]
    fn limits_of_a_grid_increase_and_cover_all_numbers_of_errors() {
        let n = 3_000;
        let band = Band::new(n, 0.025);
        assert_eq!(band.limits.len(), n);
        assert!(band.limits.windows(2).all(|pair| pair[0] <= pair[1]));
        for errors in 0..n {
            assert!(band.limit(errors) > upper_limit(errors as u64, n as u64, 0.025), "{errors}");
        }
    }
}
