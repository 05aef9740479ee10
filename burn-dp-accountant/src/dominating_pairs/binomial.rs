//! Binomial distributions of sampling: how often a unit is drawn, how often a batch is cut.

/// Returns how often one unit is drawn with replacement: the probability of at least one draw, the
/// conditional distribution `(probability, shift)` of the number of draws, and an upper bound on
/// the probability that the distribution omits.
pub(super) fn multiplicities(
    dataset_size: u64,
    sample_size: u64,
    mu: f64,
) -> (f64, Vec<(f64, f64)>, f64) {
    let (n, k) = (dataset_size as f64, sample_size as f64);
    if dataset_size == 1 {
        return (1.0, Vec::new(), 0.0);
    }
    let mut components: Vec<(f64, f64)> = Vec::new();
    let mut rest = 0.0;
    for j in 1..=sample_size {
        let ln_mass = ln_binomial_mass(k, j as f64, 1.0 / n);
        let mass = ln_mass.exp();
        // Beyond the mode the masses fall at least geometrically.
        let ratio = (k - j as f64) / ((j as f64 + 1.0) * (n - 1.0));
        if mass < 1e-30 && ratio < 0.5 {
            rest += 2.0 * mass;
            break;
        }
        components.push((mass, j as f64 * mu));
    }
    let total: f64 = components.iter().map(|(w, _)| w).sum();
    for (w, _) in &mut components {
        *w /= total;
    }
    // Above the rounding of the logarithms: more mass on every number of draws only makes the
    // divergence larger.
    let q = total.max(-(k * (-1.0 / n).ln_1p()).exp_m1()) * (1.0 + 1e-12);
    (q.min(1.0), components, rest)
}

/// A lower and an upper bound of a probability.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbabilityBounds {
    pub(super) lower: f64,
    pub(super) upper: f64,
}

impl ProbabilityBounds {
    pub(super) const ZERO: Self = Self { lower: 0.0, upper: 0.0 };
    const ONE: Self = Self { lower: 1.0, upper: 1.0 };
}

/// Returns bounds of `P[Binomial(n, q) > limit]`: a sum of masses away from the mean, then a
/// geometric series.
pub(super) fn binomial_tail(n: u64, q: f64, limit: u64) -> ProbabilityBounds {
    if limit >= n || q == 0.0 {
        return ProbabilityBounds::ZERO;
    }
    if q == 1.0 {
        return ProbabilityBounds::ONE;
    }
    let (size, odds) = (n as f64, q / (1.0 - q));
    let above = limit as f64 >= size * q;
    let mut j = if above { limit as f64 + 1.0 } else { limit as f64 };
    let ln_mass = ln_binomial_mass(size, j, q);
    let mut mass = ln_mass.exp();
    if mass == 0.0 {
        // The masses away from the mean are even smaller, so the tail is below every number.
        return match above {
            true => ProbabilityBounds { lower: 0.0, upper: f64::MIN_POSITIVE },
            false => ProbabilityBounds { lower: 1.0 - f64::EPSILON, upper: 1.0 },
        };
    }
    let mut sum = 0.0;
    while (0.0..=size).contains(&j) {
        sum += mass;
        let ratio = if above { (size - j) / (j + 1.0) * odds } else { j / (size - j + 1.0) / odds };
        if ratio < 1.0 && mass * ratio / (1.0 - ratio) < 1e-13 * sum {
            break;
        }
        mass *= ratio;
        j += if above { 1.0 } else { -1.0 };
    }
    // The omitted series, the sum, and the rounding of the logarithm of the first mass.
    let error = 1e-11 + 1e-14 * ln_mass.abs();
    let (lower, upper) = (sum * (1.0 - error).max(0.0), (sum * (1.0 + error)).min(1.0));
    if above {
        ProbabilityBounds { lower, upper }
    } else {
        ProbabilityBounds { lower: 1.0 - upper, upper: 1.0 - lower }
    }
}

/// Returns `ln P[Binomial(n, q) = k]` without the cancellation of large factorials.
///
/// # References
///
/// "Fast and Accurate Computation of Binomial Probabilities", Loader 2000.
fn ln_binomial_mass(n: f64, k: f64, q: f64) -> f64 {
    if k == 0.0 {
        return n * (-q).ln_1p();
    }
    if k == n {
        return n * q.ln();
    }
    let stirling = stirling_error(n) - stirling_error(k) - stirling_error(n - k);
    let deviance = deviance(k, n * q) + deviance(n - k, n * (1.0 - q));
    let scale = 0.5 * (n / (2.0 * std::f64::consts::PI * k * (n - k))).ln();
    stirling - deviance + scale
}

/// Returns `ln n! - ln(sqrt(2πn) (n/e)^n)`.
fn stirling_error(n: f64) -> f64 {
    if n < 16.0 {
        let stirling = (n + 0.5) * n.ln() - n + 0.5 * (2.0 * std::f64::consts::PI).ln();
        return libm::lgamma(n + 1.0) - stirling;
    }
    let inverse = 1.0 / (n * n);
    let series = 1.0 / 1260.0 - inverse * (1.0 / 1680.0 - inverse / 1188.0);
    (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * series)) / n
}

/// Returns `x ln(x/m) + m - x`, by its series if the terms cancel.
fn deviance(x: f64, m: f64) -> f64 {
    let v = (x - m) / (x + m);
    if v.abs() > 0.1 {
        return x * (x / m).ln() + m - x;
    }
    let mut sum = (x - m) * v;
    let mut power = 2.0 * x * v;
    for j in 1..40 {
        power *= v * v;
        sum += power / f64::from(2 * j + 1);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::logarithms::ln_binomial;

    #[test]
    fn tails_beyond_every_number_take_no_time() {
        let tail = binomial_tail(1_000_000_000_000_000, 1e-4, 120_000_000_000);
        assert_eq!((tail.lower, tail.upper), (0.0, f64::MIN_POSITIVE));
        let tail = binomial_tail(1_000_000_000_000_000, 1e-4, 80_000_000_000);
        assert!(tail.lower < 1.0 && tail.lower > 1.0 - 1e-15 && tail.upper == 1.0, "{tail:?}");
    }

    #[test]
    fn draws_of_huge_data_sets_have_the_limit_of_poisson() {
        // A data set that is a thousand times larger hardly changes the number of draws of one
        // unit.
        for (n, k) in [(10_000_000_000_000, 1_000_000_000_000), (1 << 53, (1 << 53) / 10)] {
            let (q, components, rest) = multiplicities(n, k, 1.0);
            let mean = k as f64 / n as f64;
            // On the safe side.
            let excess = q / -(-mean).exp_m1() - 1.0;
            assert!((0.0..3e-12).contains(&excess), "{q}");
            let mut poisson = (-mean).exp();
            for (j, (weight, _)) in (1..6).zip(components) {
                poisson *= mean / f64::from(j);
                assert!((weight * q / poisson - 1.0).abs() < 1e-11, "{j}: {weight}");
            }
            assert!(rest < 1e-13, "{rest}");
        }
    }

    const REFERENCES: [(f64, f64, f64, f64); 4] = [
        (50000.0, 600.0, 0.01, -13.605518245758208),
        (1000000000.0, 1000000.0, 0.001, -7.826_193_645_353_435),
        (100.0, 3.0, 0.2, -14.47974016921545),
        (1000000.0, 900.0, 0.001, -9.500_319_050_878_29),
    ];

    #[test]
    fn masses_of_large_binomials_have_their_reference() {
        // mpmath 1.4.1, 40 digits.
        for (n, k, q, truth) in REFERENCES {
            assert!((ln_binomial_mass(n, k, q) / truth - 1.0).abs() < 1e-13, "{n} {k}");
        }
    }

    #[test]
    fn tails_on_both_sides_of_the_mean_equal_the_sum() {
        let (n, q) = (30u64, 0.3);
        for limit in 0..30 {
            let truth: f64 = (limit + 1..=n)
                .map(|j| {
                    let j = j as f64;
                    let ln_mass = ln_binomial(30.0, j) + j * f64::ln(q) + (30.0 - j) * 0.7f64.ln();
                    ln_mass.exp()
                })
                .sum();
            let tail = binomial_tail(n, q, limit);
            let (low, high) = (tail.lower - 1e-14, tail.upper + 1e-14);
            assert!(low <= truth && truth <= high, "{limit}: {truth} {tail:?}");
            assert!(tail.upper - tail.lower < 1e-10, "{limit}: {tail:?}");
        }
    }
}
