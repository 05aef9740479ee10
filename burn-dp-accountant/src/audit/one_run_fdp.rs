//! Lower bounds from guesses about many canaries of one run, for Gaussian trade-off functions.

use crate::math::normal;

/// Returns the largest μ that `correct` correct guesses contradict, rounded down. The rejections
/// end at one μ: a larger μ makes every step of the recursion smaller.
pub(super) fn mu_lower(canaries: u64, guesses: u64, correct: u64, significance: f64) -> f64 {
    let contradicts = |mu| is_contradicted(mu, canaries, guesses, correct, significance);
    let (mut low, mut high) = (0.0, 64.0);
    if !contradicts(0.0) {
        return 0.0;
    }
    while high - low > 1e-9 {
        let middle = 0.5 * (low + high);
        if contradicts(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns whether `correct` correct guesses, with probability at least `significance`, would
/// need a total probability above 1 under μ.
///
/// With p_i the probability of i correct guesses, `right` is `Σ_(j >= i) (j / m) p_j` and
/// `wrong` is `Σ_(j >= i) ((r - j) / m) p_j`. The trade-off function bounds one by the other.
fn is_contradicted(mu: f64, canaries: u64, guesses: u64, correct: u64, significance: f64) -> bool {
    let [canaries, guesses] = [canaries, guesses].map(|count| count as f64);
    let mut right = significance * correct as f64 / canaries;
    let mut wrong = significance * (guesses - correct as f64) / canaries;
    for i in (0..correct).rev() {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::one_run::OneRunGuesses;

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
}
