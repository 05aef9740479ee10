//! The standard normal distribution.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `ln(1/sqrt(2π))`.
pub(crate) const LN_DENSITY_AT_ZERO: f64 = -0.918_938_533_204_672_8;

/// Returns the distribution function Φ.
pub(crate) fn cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// Returns `ln Φ(x)` to full relative precision, even if Φ underflows.
pub(crate) fn ln_cdf(x: f64) -> f64 {
    if x > -30.0 {
        if x > 0.0 { (-cdf(-x)).ln_1p() } else { cdf(x).ln() }
    } else {
        -0.5 * x * x - 0.5 * (2.0 * PI).ln() + ln_mills(-x)
    }
}

/// Returns `ln R(x)` of Mills' ratio `R(x) = Φ(-x)/φ(x)`, for positive `x` without cancellation.
pub(crate) fn ln_mills(x: f64) -> f64 {
    if x < 30.0 {
        return ln_cdf(-x) + 0.5 * x * x - LN_DENSITY_AT_ZERO;
    }
    // Asymptotic series; the first neglected term is 2027025/x^16, below 5e-18 at 30.
    let inverse = 1.0 / (x * x);
    let terms = [135_135.0, 10_395.0, 945.0, 105.0, 15.0, 3.0, 1.0];
    let series = terms.into_iter().fold(0.0, |sum, term| inverse * (term - sum));
    (-series).ln_1p() - x.ln()
}

/// Returns the quantile: `Φ(quantile(p)) = p`. Infinite at 0 and 1.
pub(crate) fn quantile(p: f64) -> f64 {
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    if p > 0.5 { -lower_quantile(1.0 - p) } else { lower_quantile(p) }
}

/// Returns the quantile for `p <= 1/2`, by Newton's method on `ln Φ`, which is concave: it
/// converges from the left of the root.
fn lower_quantile(p: f64) -> f64 {
    let target = p.ln();
    let mut x = -(-2.0 * target).max(0.0).sqrt();
    for _ in 0..60 {
        let value = ln_cdf(x);
        let slope = (-0.5 * x * x + LN_DENSITY_AT_ZERO - value).exp();
        let step = (value - target) / slope;
        x -= step;
        if step.abs() <= 1e-16 * x.abs().max(1e-3) {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_inverts_the_distribution_function() {
        for p in [1e-300, 1e-15, 1e-5, 0.1, 0.5, 0.7, 0.999_999] {
            let error = (ln_cdf(quantile(p)) - p.ln()).abs();
            assert!(error < 1e-13 * p.ln().abs().max(1.0), "{p}: {error}");
        }
    }

    #[test]
    fn far_tail_continues_the_near_tail() {
        let (near, far) = (ln_cdf(-29.999_999_999), ln_cdf(-30.000_000_001));
        assert!((near - far - 30.033_259 * 2e-9).abs() < 1e-11, "{near} {far}");
    }
}
