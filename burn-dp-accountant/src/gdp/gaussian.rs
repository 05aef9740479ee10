//! Gaussian differential privacy in closed form.

use crate::domain::{check_delta, check_epsilon};
use crate::error::AccountantError;
use crate::math::gaussian_dp::{LARGE_SHIFT, gaussian_delta, gaussian_epsilon};
use crate::math::normal;

/// Relative margin of the bounds, far above the error of the closed forms.
pub(super) const ROUNDING: f64 = 1e-10;

/// `μ`-Gaussian differential privacy: a mechanism that is as hard to attack as distinguishing `N(0,
/// 1)` from `N(μ, 1)`.
///
/// [`GdpAccountant`](crate::GdpAccountant) computes `μ` of a composition of events.
///
/// # References
///
/// "Gaussian Differential Privacy", Dong, Roth, Su 2022, sections 2 and 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaussianDp {
    mu: f64,
}

impl GaussianDp {
    /// Creates Gaussian differential privacy with parameter `mu`: sensitivity over noise standard
    /// deviation.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `mu` is negative or not finite.
    pub fn new(mu: f64) -> Result<Self, AccountantError> {
        if mu >= 0.0 && mu.is_finite() {
            Ok(Self { mu })
        } else {
            Err(AccountantError::invalid(
                "mu",
                format!("must be finite and not negative, got {mu}"),
            ))
        }
    }

    /// Returns the parameter μ.
    pub fn mu(&self) -> f64 {
        self.mu
    }

    /// Returns the composition with another mechanism: `√(μ₁² + μ₂²)` (Corollary 2). Exact.
    pub fn compose(&self, other: &Self) -> Self {
        Self { mu: self.mu.hypot(other.mu) }
    }

    /// Returns the `count`-fold composition: `μ √count`. Exact.
    pub fn self_compose(&self, count: u64) -> Self {
        Self { mu: self.mu * (count as f64).sqrt() }
    }

    /// Returns `δ(ε)` (Corollary 1), rounded up.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `epsilon` is negative or not finite.
    pub fn delta(&self, epsilon: f64) -> Result<f64, AccountantError> {
        check_epsilon(epsilon)?;
        if self.mu == 0.0 {
            return Ok(0.0);
        }
        Ok(delta_bracket(self.mu, epsilon)[2])
    }

    /// Returns `ε(δ)`, the inverse of [`delta`](Self::delta), rounded up.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1.
    pub fn epsilon(&self, delta: f64) -> Result<f64, AccountantError> {
        check_delta(delta)?;
        if self.mu == 0.0 {
            return Ok(0.0);
        }
        Ok(gaussian_bracket(self.mu, delta)[2])
    }

    /// Returns `G_μ(α) = Φ(Φ⁻¹(1-α) - μ)`: the smallest type II error at type I error `alpha`,
    /// rounded down (a smaller error is less privacy). `alpha` is clamped to `[0, 1]`.
    pub fn type_two_error(&self, alpha: f64) -> f64 {
        let alpha = alpha.clamp(0.0, 1.0);
        (normal::cdf(-normal::quantile(alpha) - self.mu) * (1.0 - ROUNDING)).min(1.0 - alpha)
    }
}

/// Returns lower bound, estimate and upper bound of the δ of one Gaussian release at `epsilon`.
///
/// The closed form loses digits to cancellation where ε is many times μ: its relative error grows
/// like `(ε/μ)³ / μ` units of roundoff. A δ that underflows is still above 0.
pub(super) fn delta_bracket(mu: f64, epsilon: f64) -> [f64; 3] {
    if mu == 0.0 {
        return [0.0; 3];
    }
    let estimate = gaussian_delta(mu, epsilon);
    let cancellation = 8.0 * f64::EPSILON * (epsilon / mu).powi(3) / mu;
    // `ε/μ - μ/2` is rounded relative to its parts, and Φ changes with it.
    let a = 0.5 * mu - epsilon / mu;
    let difference = 2.0 * f64::EPSILON * (mu + epsilon / mu) * (1.0 + a.abs());
    let margin = ROUNDING.max(cancellation) + difference;
    if margin.is_nan() || margin > 0.5 {
        return [0.0, estimate, 1.0];
    }
    let upper = (estimate * (1.0 + margin)).clamp(f64::MIN_POSITIVE, 1.0);
    [(estimate * (1.0 - margin)).max(0.0), estimate, upper]
}

/// Returns lower bound, estimate and upper bound of the ε of one Gaussian release at `delta`.
pub(crate) fn gaussian_bracket(mu: f64, delta: f64) -> [f64; 3] {
    if mu == 0.0 || gaussian_delta(mu, 0.0) * (1.0 + ROUNDING) <= delta {
        return [0.0; 3];
    }
    let estimate = gaussian_epsilon(mu, delta);
    // Near δ(0) a small relative error of δ is a large relative error of ε: there the margin of ε
    // is absolute, relative to μ.
    let absolute = ROUNDING * mu;
    let lower = match mu > LARGE_SHIFT {
        // The loss is at least μ²/2 with a probability of one half.
        true if delta < 0.4 => 0.5 * mu * mu * (1.0 - ROUNDING),
        true => 0.0,
        false => estimate * (1.0 - ROUNDING) - absolute,
    };
    [lower.max(0.0), estimate, estimate * (1.0 + ROUNDING) + absolute]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn composition_adds_squares() {
        let a = GaussianDp::new(3.0).unwrap();
        let b = GaussianDp::new(4.0).unwrap();
        assert!((a.compose(&b).mu() - 5.0).abs() < 1e-15);
        assert!((a.self_compose(4).mu() - 6.0).abs() < 1e-15);
    }

    #[test]
    fn trade_off_curve_is_an_involution() {
        let gdp = GaussianDp::new(1.3).unwrap();
        for alpha in [0.001, 0.1, 0.5, 0.9] {
            let back = gdp.type_two_error(gdp.type_two_error(alpha));
            assert!((back - alpha).abs() < 1e-8, "{alpha} {back}");
        }
        assert!((gdp.type_two_error(0.0) - 1.0).abs() < 1e-9 && gdp.type_two_error(1.0) == 0.0);
    }

    #[test]
    fn zero_shift_is_perfect_privacy() {
        let gdp = GaussianDp::new(0.0).unwrap();
        assert_eq!(gdp.epsilon(1e-9).unwrap(), 0.0);
        assert_eq!(gdp.delta(0.0).unwrap(), 0.0);
        assert!(GaussianDp::new(f64::NAN).is_err());
    }
}
