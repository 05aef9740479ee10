//! The privacy profile of one Gaussian release in closed form.

use super::logarithms::ln_sub_exp;
use super::normal;

/// Returns `δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2)` of μ-Gaussian differential privacy (Dong,
/// Roth, Su 2022, Corollary 1; Balle and Wang 2018), computed from logarithms.
pub(crate) fn gaussian_delta(mu: f64, epsilon: f64) -> f64 {
    ln_gaussian_delta(mu, epsilon).exp()
}

fn ln_gaussian_delta(mu: f64, epsilon: f64) -> f64 {
    if mu < SMALL_SHIFT {
        return ln_gaussian_delta_of_small_shift(mu, epsilon);
    }
    let first = normal::ln_cdf(-epsilon / mu + 0.5 * mu);
    let second = ln_second(mu, epsilon);
    if second < first { ln_sub_exp(first, second) } else { f64::NEG_INFINITY }
}

/// Returns `ln(e^ε Φ(b))`, `b = -ε/μ - μ/2`, as `ln(φ(a) R(-b))` with Mills' ratio `R` and
/// `a = -ε/μ + μ/2`: the sum of ε and `ln Φ(b)` would lose all digits where both are large.
fn ln_second(mu: f64, epsilon: f64) -> f64 {
    let t = epsilon / mu;
    let a = 0.5 * mu - t;
    normal::LN_DENSITY_AT_ZERO - 0.5 * a * a + normal::ln_mills(t + 0.5 * mu)
}

/// Shift above which ε is bounded by Chernoff's bound: beyond it, `ε/μ - μ/2` has lost the
/// significant digits, and the bound is looser by a part of order `1/μ`.
pub(crate) const LARGE_SHIFT: f64 = 1e6;

/// Shift below which the difference of the closed form cancels.
const SMALL_SHIFT: f64 = 5e-3;

/// Returns `ln δ(ε)` for small shifts, without cancellation.
///
/// With Mills' ratio `R(x) = Φ(-x)/φ(x)` and `e^ε φ(t + μ/2) = φ(t - μ/2)`, `t = ε/μ`, the closed
/// form is `φ(t - μ/2) (R(t - μ/2) - R(t + μ/2))`, and `-R'(x) = 1 - x R(x)` is positive. Its
/// integral over a length of μ by three nodes has a relative error of `μ^6`.
fn ln_gaussian_delta_of_small_shift(mu: f64, epsilon: f64) -> f64 {
    let t = epsilon / mu;
    let decline = |x: f64| {
        if x > 25.0 {
            // Asymptotic series; the next term is below 1e-10 of the first.
            let inverse = 1.0 / (x * x);
            let series = 15.0 - inverse * (105.0 - inverse * 945.0);
            inverse * (1.0 - inverse * (3.0 - inverse * series))
        } else {
            let ln_ratio = normal::ln_cdf(-x) + 0.5 * x * x - normal::LN_DENSITY_AT_ZERO;
            1.0 - x * ln_ratio.exp()
        }
    };
    let node = 0.5 * mu * 0.6f64.sqrt();
    let mean = (5.0 * (decline(t - node) + decline(t + node)) + 8.0 * decline(t)) / 18.0;
    let start = t - 0.5 * mu;
    normal::LN_DENSITY_AT_ZERO - 0.5 * start * start + (mu * mean).ln()
}

/// Returns the ε at which [`gaussian_delta`] is `delta`; 0 if `δ(0)` is already below it.
///
/// Newton's method starts right of the root: `ln δ` is concave, so that the iteration decreases
/// monotonically.
pub(crate) fn gaussian_epsilon(mu: f64, delta: f64) -> f64 {
    if gaussian_delta(mu, 0.0) <= delta {
        return 0.0;
    }
    let target = delta.ln();
    // Chernoff's bound is to the right of the root.
    let chernoff = 0.5 * mu * mu + mu * (-2.0 * target).sqrt();
    if mu > LARGE_SHIFT {
        return chernoff;
    }
    let mut epsilon = chernoff;
    for _ in 0..100 {
        let value = ln_gaussian_delta(mu, epsilon);
        let ln_slope = ln_second(mu, epsilon) - value;
        let step = (value - target) / ln_slope.exp();
        if !step.is_finite() {
            // Cancellation far in the tail: halve the distance to 0.
            epsilon *= 0.5;
            continue;
        }
        epsilon = (epsilon + step).max(0.0);
        if step.abs() <= 1e-14 * epsilon {
            return epsilon;
        }
    }
    // Rounding keeps the last steps from shrinking.
    let value = ln_gaussian_delta(mu, epsilon);
    if (value - target).abs() < 1e-6 { epsilon } else { chernoff }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shifts_do_not_cancel() {
        // Both formulas at the boundary, where the closed form has lost three digits.
        for t in [0.0, 0.7, 3.0, 6.0] {
            let mu = SMALL_SHIFT;
            let small = ln_gaussian_delta_of_small_shift(mu, t * mu);
            let closed = ln_gaussian_delta(mu, t * mu);
            assert!((small - closed).abs() < 1e-11, "{t}: {small} {closed}");
        }
        // δ(0) = 2Φ(μ/2) - 1 = μ/sqrt(2π) for tiny shifts.
        for mu in [1e-6, 1e-9, 1e-12] {
            let truth = mu / (2.0 * std::f64::consts::PI).sqrt();
            assert!((gaussian_delta(mu, 0.0) / truth - 1.0).abs() < 1e-12, "{mu}");
            let epsilon = gaussian_epsilon(mu, 0.1 * truth);
            assert!((gaussian_delta(mu, epsilon) / (0.1 * truth) - 1.0).abs() < 1e-12, "{mu}");
        }
    }

    #[test]
    fn epsilon_of_next_to_no_noise_is_huge() {
        // ε = μ²/2 + μ t with 4.2 < t < sqrt(2 ln 1e5) at δ = 1e-5: mpmath has t = 4.2649 for every
        // large μ.
        for exponent in -4..=60 {
            let mu = 10f64.powf(0.5 * f64::from(exponent));
            let epsilon = gaussian_epsilon(mu, 1e-5);
            assert!(epsilon.is_finite() && epsilon > 0.0, "{mu}: {epsilon}");
            if mu > 100.0 {
                let t = epsilon / mu - 0.5 * mu;
                let rounding = mu * f64::EPSILON;
                assert!((4.2 - rounding..4.8 + rounding).contains(&t), "{mu}: {t}");
            }
        }
    }

    #[test]
    fn gaussian_duality_has_its_golden_values() {
        // gdp_fdp.json (30 digits).
        assert!((gaussian_delta(0.01, 0.0) / 0.003989406181481645 - 1.0).abs() < 1e-12);
        assert!((gaussian_delta(4.0, 0.0) / 0.9544997361036416 - 1.0).abs() < 1e-14);
        for (mu, delta) in [(0.1, 1e-5), (1.0, 1e-12), (5.0, 1e-3)] {
            let epsilon = gaussian_epsilon(mu, delta);
            assert!((gaussian_delta(mu, epsilon) / delta - 1.0).abs() < 1e-10, "{mu} {delta}");
        }
    }
}
