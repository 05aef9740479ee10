//! Lower bounds from guesses about many canaries of one run.

use super::binomial::{ln_cdf_upper, ln_mass};
use super::checks::{check_delta, check_significance};
use super::gaussian_bound::GaussianLowerBound;
use super::one_run_fdp::mu_lower;
use crate::AccountantError;
use crate::math::logarithms::ln_add_exp;

/// Guesses about canaries of one training run; a fair coin decided about including each.
///
/// # References
///
/// T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", 2023.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneRunGuesses {
    canaries: u64,
    guesses: u64,
    correct: u64,
}

/// Resolution of ε; every bound is rounded down by at most twice this.
pub(super) const RESOLUTION: f64 = 1e-6;

/// Minimum number of guesses that can be chosen.
const FEWEST: usize = 8;

/// Limit of the search for ε: no number of canaries can prove a larger one.
const LARGEST: f64 = 64.0;

impl OneRunGuesses {
    /// Creates the result of `guesses` guesses, `correct` of them correct, about `canaries`
    /// canaries. The attacker abstains from the other canaries.
    ///
    /// # Privacy
    ///
    /// The number of guesses must be chosen without knowledge of the coins. Choosing the best of
    /// several numbers afterwards overstates ε.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] unless `correct <= guesses <= canaries`.
    pub fn new(canaries: u64, guesses: u64, correct: u64) -> Result<Self, AccountantError> {
        if guesses > canaries || correct > guesses {
            return Err(AccountantError::invalid(
                "guesses",
                format!(
                    "must be at least the right guesses and at most the canaries, got {correct} \
                     right of {guesses} guesses about {canaries} canaries"
                ),
            ));
        }
        Ok(Self { canaries, guesses, correct })
    }

    /// Creates the result of the `guesses` most confident guesses.
    pub(super) fn of_most_confident(wrong: &[u64], guesses: usize) -> Self {
        let (canaries, guesses) = (wrong.len() as u64, guesses as u64);
        let wrong = wrong.get(guesses as usize - 1).copied().unwrap_or(guesses);
        Self { canaries, guesses, correct: guesses - wrong }
    }

    /// Returns the number of canaries.
    pub fn canaries(&self) -> u64 {
        self.canaries
    }

    /// Returns the number of guesses.
    pub fn guesses(&self) -> u64 {
        self.guesses
    }

    /// Returns the number of correct guesses.
    pub fn correct(&self) -> u64 {
        self.correct
    }

    /// Returns an upper bound on the probability of at least as many correct guesses if the
    /// training is `(epsilon, delta)`-differentially private: `β + 2 m δ α` with `β = P[Bin(r, q)
    /// >= v]`, `q = e^ε / (1 + e^ε)` and `α = max_i P[v - i <= Bin < v] / i`.
    pub fn p_value(&self, epsilon: f64, delta: f64) -> f64 {
        self.ln_p_value(epsilon, delta).exp()
    }

    fn ln_p_value(&self, epsilon: f64, delta: f64) -> f64 {
        let wrong = self.guesses - self.correct;
        // Bin(r, q) >= v if at most r - v are wrong; a guess is wrong with 1 / (1 + e^ε).
        let p_wrong = wrong_probability(epsilon);
        let ln_beta = ln_cdf_upper(self.guesses, wrong, p_wrong);
        if delta == 0.0 || self.correct == 0 {
            return ln_beta;
        }
        // α: wrong guesses from r - v + 1 to r - v + i, i = 1, 2, ...
        let (mut ln_sum, mut ln_alpha) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for i in 1..=self.correct {
            let ln_next = ln_mass(self.guesses, wrong + i, p_wrong);
            ln_sum = ln_add_exp(ln_sum, ln_next);
            ln_alpha = ln_alpha.max(ln_sum - (i as f64).ln());
            if ln_next < ln_alpha && (wrong + i) as f64 > self.guesses as f64 * p_wrong {
                // The masses fall from here on, and with them the means.
                break;
            }
        }
        let ln_delta_term = (2.0 * self.canaries as f64 * delta).ln() + ln_alpha;
        (ln_add_exp(ln_beta, ln_delta_term) + 1e-9).min(0.0)
    }

    /// Returns the lower bound on ε at `delta`: 0, or the ε up to which the result has a
    /// probability of at most `significance`, rounded down.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not in `[0, 1)`, or
    /// `significance` not in (0, 1/2).
    pub fn epsilon_lower(&self, delta: f64, significance: f64) -> Result<f64, AccountantError> {
        check_delta(delta)?;
        check_significance(significance)?;
        let target = significance.ln();
        Ok(largest_rejected(|epsilon| self.ln_p_value(epsilon, delta) <= target))
    }

    /// Returns the lower bound on μ, and its ε at `delta`, if the training is μ-Gaussian
    /// differentially private: the largest μ that the result contradicts at `significance`.
    ///
    /// It is much higher than [`epsilon_lower`](Self::epsilon_lower), because (ε, δ) allows a worse
    /// mechanism than the Gaussian one, and it is a bound only for training whose trade-off
    /// function is at least approximately Gaussian.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not in `[0, 1)`, or
    /// `significance` not in (0, 1/2).
    ///
    /// # References
    ///
    /// S. Mahloujifar, L. Melis, K. Chaudhuri, "Auditing f-Differential Privacy in One Run", 2024,
    /// the recursion over the number of correct guesses.
    pub fn gaussian_bound(
        &self,
        delta: f64,
        significance: f64,
    ) -> Result<GaussianLowerBound, AccountantError> {
        check_delta(delta)?;
        check_significance(significance)?;
        Ok(GaussianLowerBound::new(self.mu_lower(significance), delta))
    }

    /// Returns the largest μ that the result contradicts at `significance`, rounded down.
    fn mu_lower(&self, significance: f64) -> f64 {
        mu_lower(self.canaries, self.guesses, self.correct, significance)
    }

    /// Returns the lower bound on μ from the best of several numbers of guesses: all canaries, half
    /// of them, a quarter, and so on. The numbers depend only on the number of canaries; each is
    /// tested at its share of the significance. Also returns the guesses.
    pub(super) fn best_of_halves(wrong: &[u64], significance: f64) -> (Self, f64) {
        let numbers: Vec<usize> =
            std::iter::successors(Some(wrong.len()), |&r| (r / 2 >= FEWEST).then_some(r / 2))
                .collect();
        let share = significance / numbers.len() as f64;
        let fit = |&r: &usize| {
            let guesses = Self::of_most_confident(wrong, r);
            (guesses, guesses.mu_lower(share))
        };
        let first = fit(&wrong.len());
        numbers[1..]
            .iter()
            .map(fit)
            .fold(first, |best, next| if next.1 > best.1 { next } else { best })
    }
}

/// Returns the largest ε that is rejected, rounded down, for a test whose rejections end at one ε.
pub(super) fn largest_rejected(rejected: impl Fn(f64) -> bool) -> f64 {
    if !rejected(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, LARGEST);
    while high - low > RESOLUTION {
        let middle = 0.5 * (low + high);
        if rejected(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns the minimum probability that a guess is wrong under ε.
pub(super) fn wrong_probability(epsilon: f64) -> f64 {
    1.0 / (1.0 + epsilon.exp())
}

/// Returns the lower bound on ε from all numbers of guesses at once.
///
/// `wrong[r - 1]` of the r most confident guesses are wrong. The statistic is the smallest of the
/// p-values of the m numbers of guesses. Its distribution is computed exactly, so that exactly the
/// choice of the best number of guesses is accounted for: the m p-values depend on each other.
///
/// The distribution equals the one for independent guesses. Proof: let canary i be guessed
/// correctly (`X_i = 1`), in the order of the canaries. Given the output of the training and the
/// coins of the canaries before i, `P[X_i = 1] <= q + f_i` with `q = e^ε / (1 + e^ε)`, and by (ε,
/// δ) the mean of `f_i / (1 - q)` is at most δ. So `X_i <= max(W_i, F_i)` with `W_i` a coin of
/// probability q that is independent of the output and of all before, and `P[F_i = 1] <= δ`. Except
/// with probability m δ no `F_i` is 1, and then there are at most as many correct guesses as coins
/// W, in whatever order the output puts them. The p-value is therefore the p-value of the coins
/// plus m δ.
///
/// A test at ε rejects if the statistic is too small. Because both the statistic and its
/// distribution depend on ε, all values of an interval are rejected together, with the largest
/// statistic and the smallest critical values of the interval, and coins of its largest q.
pub(super) fn epsilon_of_all_numbers(wrong: &[u64], delta: f64, significance: f64) -> f64 {
    let spent = wrong.len() as f64 * delta;
    if spent >= significance {
        return 0.0;
    }
    let level = (significance - spent) * (1.0 - 1e-9);
    let (mut left, mut width) = (0.0, 0.25);
    // Intervals that touch, from 0 on: every ε below the result is rejected.
    while width > RESOLUTION && left < LARGEST {
        if crossing_probability(wrong, left, left + width) <= level {
            left += width;
            width *= 2.0;
        } else {
            width *= 0.5;
        }
    }
    left
}

/// Returns an upper bound on the probability of a statistic this small, for every ε of an interval.
fn crossing_probability(wrong: &[u64], left: f64, right: f64) -> f64 {
    let (p_left, p_right) = (wrong_probability(left), wrong_probability(right));
    let smallest = wrong.iter().zip(1..).map(|(&wrong, r)| ln_cdf_upper(r, wrong, p_right));
    // Equal up to rounding counts as equal.
    let statistic = smallest.fold(0.0, f64::min) + 1e-9;
    if statistic >= 0.0 {
        return 1.0;
    }
    // alive[k]: probability of `base + k` wrong guesses without a crossing so far.
    let (mut alive, mut base) = (vec![1.0], 0u64);
    let mut crossed = 0.0;
    // Numbers of wrong guesses below `critical` cross.
    let mut critical = 0u64;
    for r in 1..=wrong.len() as u64 {
        alive.push(0.0);
        for k in (0..alive.len()).rev() {
            let before = if k > 0 { alive[k - 1] } else { 0.0 };
            alive[k] = alive[k] * (1.0 - p_right) + before * p_right;
        }
        while critical < r && ln_cdf_upper(r, critical, p_left) <= statistic {
            critical += 1;
        }
        while base < critical && !alive.is_empty() {
            crossed += alive.remove(0);
            base += 1;
        }
        // A negligible remainder counts as crossed.
        while alive.last().is_some_and(|&rest| rest < 1e-18 && alive.len() > 1) {
            crossed += alive.pop().unwrap_or_default();
        }
        if crossed >= 0.5 {
            return 1.0;
        }
    }
    crossed * (1.0 + 1e-9)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn epsilon(canaries: u64, guesses: u64, correct: u64, delta: f64, significance: f64) -> f64 {
        let guesses = OneRunGuesses::new(canaries, guesses, correct).unwrap();
        guesses.epsilon_lower(delta, significance).unwrap()
    }

    #[test]
    fn bounds_equal_the_golden_table() {
        // Rows p010 to p023 of golden/auditing.json: exact binomial tails in 40 digits.
        for (canaries, guesses, correct, significance, delta, expected) in [
            (100, 100, 100, 0.05, 0.0, 3.492_965_431_152_293_3),
            (100, 100, 95, 0.05, 0.0, 2.172_434_043_192_899_5),
            (100, 100, 50, 0.05, 0.0, 0.0),
            (10, 10, 10, 0.05, 0.0, 1.051_873_233_231_709),
            (1, 1, 1, 0.05, 0.0, 0.0),
            (1000, 100, 98, 0.05, 0.0, 2.723_182_319_636_165_5),
            (1000, 100, 98, 0.05, 1e-5, 2.710_962_922_007_027_5),
            (1000, 1000, 700, 0.05, 1e-5, 0.731_740_449_418_692),
            (1000, 200, 190, 0.01, 1e-4, 1.996_619_618_531_143_1),
            (100, 100, 100, 0.05, 1e-5, 3.490_215_955_326_399),
            (100, 100, 100, 0.05, 1e-3, 3.202_303_753_313_301_6),
            (500, 60, 60, 0.1, 1e-6, 3.239_943_447_963_623_8),
            (5, 4, 4, 0.05, 0.0, 0.0),
            (2000, 50, 50, 0.05, 1e-3, 0.0),
        ] {
            let found = epsilon(canaries, guesses, correct, delta, significance);
            let error = expected - found;
            assert!((0.0..3e-6).contains(&error), "{canaries} {guesses} {correct}: {found}");
        }
    }

    #[test]
    fn p_values_equal_the_golden_table() {
        // Rows p011, p016 and p018.
        for (canaries, guesses, correct, delta, epsilon, expected) in [
            (100, 100, 95, 0.0, 0.5, 1.739_054_047_753_673_7e-14),
            (1000, 100, 98, 1e-5, 1.0, 0.000_599_651_516_743_263_6),
            (1000, 200, 190, 1e-4, 3.0, 0.670_506_739_263_814_5),
        ] {
            let guesses = OneRunGuesses::new(canaries, guesses, correct).unwrap();
            let found = guesses.p_value(epsilon, delta);
            assert!((found / expected - 1.0).abs() < 1e-8, "{found} {expected}");
        }
    }

    #[test]
    fn more_right_guesses_than_guesses_are_refused() {
        assert!(OneRunGuesses::new(10, 5, 6).is_err());
        assert!(OneRunGuesses::new(10, 11, 6).is_err());
        let guesses = OneRunGuesses::new(10, 5, 5).unwrap();
        assert!(guesses.epsilon_lower(1.0, 0.05).is_err());
        assert!(guesses.epsilon_lower(f64::NAN, 0.05).is_err());
        assert!(guesses.epsilon_lower(0.0, 0.5).is_err());
    }

    #[test]
    fn the_choice_costs_nothing_if_all_guesses_are_right() {
        let chosen = epsilon_of_all_numbers(&[0; 100], 0.0, 0.05);
        assert!((chosen - 3.492_965_431).abs() < 1e-4 && chosen <= 3.492_965_432, "{chosen}");
    }

    #[test]
    fn the_choice_finds_the_confident_guesses() {
        // 60 correct guesses, then a coin for each.
        let wrong: Vec<u64> = (1..=1000u64).map(|r| r.saturating_sub(60) / 2).collect();
        let chosen = epsilon_of_all_numbers(&wrong, 0.0, 0.05);
        let known = epsilon(1000, 60, 60, 0.0, 0.05);
        let all = epsilon(1000, 1000, 1000 - wrong[999], 0.0, 0.05);
        assert!(chosen > 2.0 && chosen < known && chosen > 5.0 * all, "{all} {chosen} {known}");
    }

    #[test]
    fn crossing_probability_is_that_of_all_sequences() {
        // Every outcome of 12 guesses, at one ε.
        let observed: Vec<u64> = (1..=12).map(|r| u64::from(r > 9)).collect();
        let epsilon = 0.7;
        let p_wrong = wrong_probability(epsilon);
        let statistic = |bits: u32| {
            let wrong = (1..=12).map(|r| u64::from((bits & ((1 << r) - 1)).count_ones()));
            let p_values = wrong.zip(1..).map(|(wrong, r)| ln_cdf_upper(r, wrong, p_wrong));
            p_values.fold(0.0, f64::min)
        };
        let bits = |wrong: &[u64]| {
            let mut before = 0;
            let steps = wrong.iter().enumerate().map(|(i, &now)| {
                let bit = u32::from(now > before) << i;
                before = now;
                bit
            });
            steps.sum::<u32>()
        };
        let limit = statistic(bits(&observed)) + 1e-9;
        let exact: f64 = (0..1u32 << 12)
            .filter(|&bits| statistic(bits) <= limit)
            .map(|bits| {
                let wrong = bits.count_ones() as i32;
                p_wrong.powi(wrong) * (1.0 - p_wrong).powi(12 - wrong)
            })
            .sum();
        let found = crossing_probability(&observed, epsilon, epsilon);
        assert!((found / exact - 1.0).abs() < 1e-7, "{found} {exact}");
        assert!(exact < 0.9 && exact > 1e-3, "{exact}");
    }

    #[test]
    fn the_numbers_of_guesses_share_the_significance() {
        let wrong = vec![0; 100];
        // 100, 50, 25 and 12.
        let (guesses, mu) = OneRunGuesses::best_of_halves(&wrong, 0.05);
        let all = OneRunGuesses::new(100, 100, 100).unwrap();
        assert_eq!(guesses, all);
        assert_eq!(mu, all.mu_lower(0.05 / 4.0));
    }
}
