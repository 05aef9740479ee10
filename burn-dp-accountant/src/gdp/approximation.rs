//! Central-limit formulas: estimates, not guarantees.

use std::fmt;

use super::gaussian::GaussianDp;
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::math::normal;
use crate::rounded::Rounded;

/// An ε without a guarantee: it can be far below the true ε (by 94% in the worst known case).
///
/// There is deliberately no conversion into [`Epsilon`](crate::Epsilon).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct ApproximateEpsilon(f64);

impl ApproximateEpsilon {
    /// Returns the number, which is not a guarantee.
    pub fn without_guarantee(self) -> f64 {
        self.0
    }
}

impl fmt::Display for ApproximateEpsilon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "about {} (central-limit approximation, no guarantee)",
            Rounded::nearest(self.0).with_digits(4)
        )
    }
}

/// The Gaussian parameter μ that a long composition approaches, used as if the limit were reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CentralLimitEstimate {
    mu: f64,
}

impl CentralLimitEstimate {
    /// Returns the estimate for Poisson sampling: `μ = q √(T (e^{1/σ²} - 1))`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain.
    ///
    /// # References
    ///
    /// "Deep Learning with Gaussian Differential Privacy", Bu, Dong, Long, Su 2020, section 3.
    pub fn poisson(q: f64, noise_multiplier: f64, steps: u64) -> Result<Self, AccountantError> {
        DpEvent::dp_sgd_step(q, noise_multiplier).validate()?;
        let growth = noise_multiplier.powi(-2).exp_m1();
        Ok(Self { mu: q * (steps as f64 * growth).sqrt() })
    }

    /// Returns the estimate for fixed-size sampling: `μ = √2 q √T h(σ)` with
    /// `h(σ)² = e^{1/σ²} Φ(3/(2σ)) + 3Φ(-1/(2σ)) - 2`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain.
    ///
    /// # References
    ///
    /// "Gaussian Differential Privacy", Dong, Roth, Su 2022, Theorem 5 and Corollary 4; as used in
    /// "Batch Clipping and Adaptive Layerwise Clipping", Nguyen et al., appendix B.1.
    pub fn fixed_size(q: f64, noise_multiplier: f64, steps: u64) -> Result<Self, AccountantError> {
        DpEvent::dp_sgd_step(q, noise_multiplier).validate()?;
        let sigma = noise_multiplier;
        let square =
            sigma.powi(-2).exp() * normal::cdf(1.5 / sigma) + 3.0 * normal::cdf(-0.5 / sigma) - 2.0;
        Ok(Self { mu: q * (2.0 * steps as f64 * square.max(0.0)).sqrt() })
    }

    /// Returns the μ of the limit.
    pub fn mu(&self) -> f64 {
        self.mu
    }

    /// Returns the ε of the limit at `delta`: an approximation.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1, or μ
    /// overflows.
    pub fn epsilon(&self, delta: f64) -> Result<ApproximateEpsilon, AccountantError> {
        Ok(ApproximateEpsilon(GaussianDp::new(self.mu)?.epsilon(delta)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fixed_size_limit_has_its_golden_value() {
        // fixed_size_wor.json, row p00 (Opacus).
        let limit = CentralLimitEstimate::fixed_size(256.0 / 60_000.0, 1.1, 14_062).unwrap();
        assert!((limit.mu() / 0.7373882529873215 - 1.0).abs() < 1e-9);
        let epsilon = limit.epsilon(1e-5).unwrap();
        assert!((epsilon.without_guarantee() / 3.0867076754112976 - 1.0).abs() < 1e-6);
        assert!(epsilon.to_string().contains("no guarantee"));
    }

    #[test]
    fn poisson_limit_can_be_below_the_exact_value() {
        // epsilon_poisson.json, row p000: the truth is 2.3816.
        let limit = CentralLimitEstimate::poisson(256.0 / 60_000.0, 1.1, 14_062).unwrap();
        assert!(limit.epsilon(1e-5).unwrap().without_guarantee() < 2.38);
    }
}
