//! Tails and confidence limits of binomial distributions, rounded to the safe side.

use crate::math::logarithms::ln_binomial;

/// Returns `ln P[Bin(n, p) = k]`.
pub(super) fn ln_mass(n: u64, k: u64, p: f64) -> f64 {
    let (size, successes) = (n as f64, k as f64);
    let power = |count: f64, ln: f64| if count == 0.0 { 0.0 } else { count * ln };
    ln_binomial(size, successes) + power(successes, p.ln()) + power(size - successes, (-p).ln_1p())
}

/// Returns an upper bound on the relative error of the tails: the logarithms of the factorials and
/// of the powers are exact to a few units in the last place.
fn rounding(n: u64, p: f64) -> f64 {
    let size = n as f64;
    let powers = if p > 0.0 && p < 1.0 { -p.ln().min((-p).ln_1p()) } else { 0.0 };
    4.0 * f64::EPSILON * size * (3.0 * size.ln().max(1.0) + powers)
}

/// Returns an upper bound on `ln P[Bin(n, p) <= k]`, as a sum of positive terms.
pub(super) fn ln_cdf_upper(n: u64, k: u64, p: f64) -> f64 {
    if k >= n || p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return f64::NEG_INFINITY;
    }
    let margin = rounding(n, p);
    let odds = p / (1.0 - p);
    let size = n as f64;
    if (k as f64) < size * p {
        // From k downwards, where the terms fall.
        let down = ln_mass(n, k, p) + terms(|j| j / ((size - j + 1.0) * odds), k as f64, -1.0).ln();
        return (down + margin).min(0.0);
    }
    // From k + 1 upwards: the complement.
    let up =
        ln_mass(n, k + 1, p) + terms(|j| (size - j) / (j + 1.0) * odds, k as f64 + 1.0, 1.0).ln();
    (-(up - margin).exp().min(1.0)).ln_1p().min(0.0)
}

/// Returns `1 + ratio(j) + ratio(j) ratio(j ± 1) + ...` for ratios that fall, and a bound on the
/// omitted terms.
fn terms(ratio: impl Fn(f64) -> f64, start: f64, step: f64) -> f64 {
    let (mut sum, mut term, mut j) = (1.0, 1.0, start);
    loop {
        let next = ratio(j);
        term *= next;
        if term <= 0.0 {
            return sum;
        }
        if next < 1.0 && term < 1e-17 * sum * (1.0 - next) {
            return sum * (1.0 + f64::EPSILON);
        }
        sum += term;
        j += step;
    }
}

/// Returns the upper confidence limit of a probability after `successes` in `trials`: the
/// probability at which this few successes have the probability `significance`, rounded up.
///
/// # References
///
/// C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case
/// of the binomial", 1934.
pub(super) fn upper_limit(successes: u64, trials: u64, significance: f64) -> f64 {
    if successes >= trials {
        return 1.0;
    }
    let target = significance.ln();
    let (mut low, mut high) = (successes as f64 / trials as f64, 1.0);
    while high - low > 1e-14 * high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if ln_cdf_upper(trials, successes, middle) > target { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_sums_of_masses() {
        for (n, p) in [(1, 0.3), (10, 0.5), (60, 0.02), (200, 0.97)] {
            let mut sum = 0.0;
            for k in 0..n {
                sum += ln_mass(n, k, p).exp();
                let tail = ln_cdf_upper(n, k, p).exp();
                assert!(tail >= sum * (1.0 - 1e-13), "{n} {k} {p}");
                assert!(tail <= sum * (1.0 + 1e-9) + 1e-300, "{n} {k} {p}: {tail} {sum}");
            }
        }
    }

    #[test]
    fn tails_do_not_underflow() {
        let ln = ln_cdf_upper(1_000_000, 10, 0.5);
        assert!(ln.is_finite() && ln < -690_000.0, "{ln}");
        assert_eq!(ln_cdf_upper(5, 5, 0.5), 0.0);
        assert_eq!(ln_cdf_upper(5, 4, 1.0), f64::NEG_INFINITY);
    }

    #[test]
    fn upper_limits_equal_the_golden_table() {
        // Rows p000 to p009 of golden/auditing.json: bisection of the exact tail in mpmath.
        for (successes, trials, significance, expected) in [
            (0, 10, 0.05, 0.258_865_550_893_052_3),
            (3, 10, 0.05, 0.606_624_216_105_413_4),
            (9, 10, 0.05, 0.994_883_803_108_176_3),
            (10, 10, 0.05, 1.0),
            (0, 1, 0.025, 0.975),
            (1, 100, 0.01, 0.064_542_732_048_581_64),
            (50, 100, 0.05, 0.586_378_285_369_088_2),
            (5, 1000, 0.001, 0.016_360_751_154_977_753),
            (0, 1000, 0.05, 0.002_991_249_545_095_296_2),
            (999, 1000, 0.05, 0.999_948_708_021_091),
        ] {
            let limit = upper_limit(successes, trials, significance);
            assert!((limit / expected - 1.0).abs() < 1e-10, "{successes}/{trials}: {limit}");
            assert!(limit >= expected * (1.0 - 1e-15), "{successes}/{trials}: {limit}");
        }
    }
}
