//! Lower bounds from guesses about many canaries of one run, for Gaussian trade-off functions.

use super::checks::{check_delta, check_significance};
use super::gaussian_bound::GaussianLowerBound;
use super::one_run::OneRunGuesses;
use crate::AccountantError;
use crate::math::normal;

/// Minimum number of guesses that can be chosen.
const FEWEST: usize = 8;

impl OneRunGuesses {
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

    /// Returns the largest μ that is rejected, rounded down. The rejections end at one μ: a larger
    /// μ makes every step of the recursion smaller.
    pub(super) fn mu_lower(&self, significance: f64) -> f64 {
        let (mut low, mut high) = (0.0, 64.0);
        if !self.contradicts(0.0, significance) {
            return 0.0;
        }
        while high - low > 1e-9 {
            let middle = 0.5 * (low + high);
            if self.contradicts(middle, significance) { low = middle } else { high = middle }
        }
        low
    }

    /// Returns whether `correct` correct guesses, with probability at least `significance`, would
    /// need a total probability above 1 under μ.
    ///
    /// With p_i the probability of i correct guesses, `right` is `Σ_(j >= i) (j / m) p_j` and
    /// `wrong` is `Σ_(j >= i) ((r - j) / m) p_j`. The trade-off function bounds one by the other.
    fn contradicts(&self, mu: f64, significance: f64) -> bool {
        let [canaries, guesses, correct] =
            [self.canaries(), self.guesses(), self.correct()].map(|count| count as f64);
        let mut right = significance * correct / canaries;
        let mut wrong = significance * (guesses - correct) / canaries;
        for i in (0..self.correct()).rev() {
            let needed = normal::cdf(normal::quantile(right) - mu) * (1.0 - 1e-12);
            if needed <= wrong {
                // Neither changes any more.
                break;
            }
            let i = i as f64;
            right = (right + i / (guesses - i) * (needed - wrong)).min(1.0);
            wrong = needed;
        }
        right + wrong > guesses / canaries * (1.0 + 1e-12)
    }
}

/// Returns the lower bound on μ from the best of several numbers of guesses: all canaries, half of
/// them, a quarter, and so on. The numbers depend only on the number of canaries; each is tested at
/// its share of the significance. Also returns the guesses.
pub(super) fn best_of_halves(wrong: &[u64], significance: f64) -> (OneRunGuesses, f64) {
    let numbers: Vec<usize> =
        std::iter::successors(Some(wrong.len()), |&r| (r / 2 >= FEWEST).then_some(r / 2)).collect();
    let share = significance / numbers.len() as f64;
    let fit = |&r: &usize| {
        let guesses = OneRunGuesses::of_most_confident(wrong, r);
        (guesses, guesses.mu_lower(share))
    };
    let first = fit(&wrong.len());
    numbers[1..].iter().map(fit).fold(first, |best, next| if next.1 > best.1 { next } else { best })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bounds_equal_the_golden_table() {
        // Rows p024 to p029 of golden/auditing.json: an own implementation and jax_privacy 2.0.0.
        for (canaries, guesses, correct, significance, delta, expected) in [
            (100, 100, 100, 0.05, 1e-5, 8.216_185_964_346_096),
            (100, 100, 90, 0.05, 1e-5, 3.587_927_229_498_518_5),
            (1000, 100, 98, 0.05, 1e-5, 4.227_872_941_288_297),
            (1000, 1000, 700, 0.05, 1e-5, 1.371_979_391_301_181_3),
            (200, 40, 40, 0.1, 1e-6, 5.857_786_862_835_61),
            (50, 20, 15, 0.05, 1e-3, 0.158_253_092_201_164_24),
        ] {
            let guesses = OneRunGuesses::new(canaries, guesses, correct).unwrap();
            let found = guesses.gaussian_bound(delta, significance).unwrap().epsilon_lower;
            assert!((found / expected - 1.0).abs() < 1e-6, "{guesses:?}: {found}");
        }
    }

    #[test]
    fn the_numbers_of_guesses_share_the_significance() {
        let wrong = vec![0; 100];
        // 100, 50, 25 and 12.
        let (guesses, mu) = best_of_halves(&wrong, 0.05);
        let all = OneRunGuesses::new(100, 100, 100).unwrap();
        assert_eq!(guesses, all);
        assert_eq!(mu, all.mu_lower(0.05 / 4.0));
    }
}
