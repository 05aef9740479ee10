//! Rényi divergence of the Gaussian mechanism on a sample of fixed size.
//!
//! # References
//!
//! "Subsampled Rényi Differential Privacy and Analytical Moments Accountant", Wang, Balle,
//! Kasiviswanathan 2019, Theorem 27; non-integer orders by convexity (Corollary 10).

use crate::math::logarithms::{ln_add_exp, ln_binomial};
use crate::math::normal::LN_DENSITY_AT_ZERO;

/// Maximum order for the tight form of the theorem. Larger orders use the looser form, as other
/// libraries do.
const LARGEST_TIGHT_ORDER: u64 = 256;

/// Maximum sensitivity over noise for the tight form of the theorem. Above, `(L-1)^l` is almost
/// `L^l` where it counts, and the looser form, whose factor is 2 in place of 4, is smaller.
const LARGEST_TIGHT_MU: f64 = 4.0;

/// The upper bound of one release, prepared for all orders.
#[derive(Debug, Clone)]
pub(crate) struct FixedSizeBound {
    q: f64,
    mu: f64,
    /// `ln E_Q[(L-1)^{2k}]` at index `k`; empty where the tight form is not used.
    ln_even_differences: Vec<f64>,
}

impl FixedSizeBound {
    /// Prepares the bound; `mu` is the sensitivity under replace-one over the noise.
    pub(crate) fn new(q: f64, mu: f64) -> Self {
        let last = LARGEST_TIGHT_ORDER as usize / 2 + 1;
        let powers = if mu <= LARGEST_TIGHT_MU { 0..last + 1 } else { 0..0 };
        let ln_even_differences = powers.map(|k| ln_even_difference(2 * k, mu)).collect();
        Self { q, mu, ln_even_differences }
    }

    /// Returns an upper bound on the Rényi divergence of order `order`.
    pub(crate) fn at(&self, order: f64) -> f64 {
        let plain = 0.5 * order * self.mu * self.mu;
        // At larger orders sampling no longer helps, and the sum would be long.
        if order > 5e3 {
            return plain;
        }
        // (α-1)·D_α is convex in α, so that its chord between integers is an upper bound.
        let below = order.floor();
        let share = order - below;
        let low = if below <= 1.0 { 0.0 } else { self.ln_moment(below as u64) };
        let log_moment = if share == 0.0 {
            low
        } else {
            (1.0 - share) * low + share * self.ln_moment(below as u64 + 1)
        };
        (log_moment / (order - 1.0)).min(plain)
    }

    fn ln_moment(&self, order: u64) -> f64 {
        let n = order as f64;
        let second = self.mu * self.mu;
        let ln_second = (4f64.ln() + second.exp_m1().ln()).min(second + 2f64.ln());
        let mut sum = ln_add_exp(0.0, ln_binomial(n, 2.0) + 2.0 * self.q.ln() + ln_second);
        for j in 3..=order {
            let x = j as f64;
            let loose = 2f64.ln() + 0.5 * x * (x - 1.0) * second;
            let even = &self.ln_even_differences;
            let ln_difference = if order <= LARGEST_TIGHT_ORDER && !even.is_empty() {
                let (low, high) = ((j / 2) as usize, j.div_ceil(2) as usize);
                (4f64.ln() + 0.5 * (even[low] + even[high])).min(loose)
            } else {
                loose
            };
            sum = ln_add_exp(sum, ln_binomial(n, x) + x * self.q.ln() + ln_difference);
        }
        sum
    }
}

/// Returns `ln E[(L-1)^l]` for even `l` and `L = e^{μx - μ²/2}`, `x` standard normal.
///
/// This is the forward difference of the theorem as an integral in which nothing cancels. The
/// trapezoidal rule converges geometrically, because the integrand is entire.
fn ln_even_difference(l: usize, mu: f64) -> f64 {
    if l == 0 {
        return 0.0;
    }
    let power = l as f64;
    let step = (0.25f64).min(0.25 / mu);
    let (low, high) = (-14.0 - power.sqrt(), power * mu + 14.0);
    let count = ((high - low) / step).ceil() as usize;
    let exponents: Vec<f64> = (0..=count)
        .map(|k| {
            let x = low + step * k as f64;
            let y = mu * x - 0.5 * mu * mu;
            let ln_excess = if y > 30.0 { y } else { y.exp_m1().abs().ln() };
            LN_DENSITY_AT_ZERO - 0.5 * x * x + power * ln_excess
        })
        .collect();
    let peak = exponents.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    peak + (step * exponents.iter().map(|e| (e - peak).exp()).sum::<f64>()).ln()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_looser_form_is_smaller_from_the_largest_sensitivity_on() {
        // 4 E[(L-1)^l] against 2 E[L^l], for all powers of the tight form.
        for mu in [LARGEST_TIGHT_MU, 5.0] {
            let even = |l: usize| 4f64.ln() + ln_even_difference(l, mu);
            for j in 3..=LARGEST_TIGHT_ORDER as usize + 1 {
                let tight = 0.5 * (even(j / 2 * 2) + even(j.div_ceil(2) * 2));
                let x = j as f64;
                assert!(tight > 2f64.ln() + 0.5 * x * (x - 1.0) * mu * mu, "{mu} {j}");
            }
        }
    }

    #[test]
    fn hardly_any_noise_costs_no_time() {
        // One integral would have ten million points.
        let bound = FixedSizeBound::new(0.1, 1e4);
        assert!((bound.at(2.0) / 1e8 - 1.0).abs() < 1e-6, "{}", bound.at(2.0));
        assert!(FixedSizeBound::new(0.1, 1e200).at(2.0).is_infinite());
    }

    #[test]
    fn second_difference_equals_its_closed_form() {
        // E[(L-1)²] = e^{μ²} - 1.
        for mu in [0.01f64, 0.5, 1.0, 3.0] {
            let closed = (mu * mu).exp_m1().ln();
            assert!((ln_even_difference(2, mu) - closed).abs() < 1e-11, "{mu}");
        }
    }
}
