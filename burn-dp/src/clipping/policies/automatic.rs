use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use crate::DpError;
use crate::clipping::thresholds::Thresholds;
use crate::error::positive;

/// Automatic clipping: scales every gradient to almost the same norm, `g · C/(‖g‖ + γ)`.
///
/// There is no threshold to tune. For optimizers such as SGD, C is a factor of the learning rate;
/// on Adam it has no effect.
///
/// # Privacy
///
/// A contribution has norm `C ‖g‖/(‖g‖ + γ) < C`. So the sum has L2 sensitivity C if a unit is
/// added or removed, and 2C if one is replaced. A unit whose norm is not finite contributes zero.
///
/// # References
///
/// Bu, Wang, Zha, Karypis, Automatic clipping: differentially private deep learning made easier and
/// stronger, 2022, section 4 (AUTO-S).
#[derive(Clone, Debug, PartialEq)]
pub struct AutomaticClipping {
    norm: f64,
    stability: f64,
}

impl AutomaticClipping {
    /// Creates the policy with C = 1 and γ = 0.01.
    pub fn new() -> Self {
        Self { norm: 1.0, stability: 0.01 }
    }

    /// Sets the norm C. Default: 1.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the norm is not positive and finite.
    pub fn with_norm(mut self, norm: f64) -> Result<Self, DpError> {
        positive("norm", norm)?;
        self.norm = norm;
        Ok(self)
    }

    /// Sets the constant γ. Default: 0.01. Gradients with a much smaller norm keep their relative
    /// size.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the constant is not positive and finite.
    pub fn with_stability(mut self, stability: f64) -> Result<Self, DpError> {
        positive("stability", stability)?;
        self.stability = stability;
        Ok(self)
    }
}

impl Default for AutomaticClipping {
    fn default() -> Self {
        Self::new()
    }
}

impl Clipping for AutomaticClipping {
    fn thresholds(&self, _step: u64) -> Result<Thresholds, DpError> {
        Thresholds::whole(self.norm)?.normalized(self.stability)
    }

    fn describe(&self) -> String {
        format!(
            "automatic, per-example gradients times {} / (L2 norm + {})",
            self.norm, self.stability
        )
    }

    fn to_config(&self, _: Seal) -> Option<ClippingConfig> {
        let Self { norm, stability } = *self;
        Some(ClippingConfig(Settings::Automatic { norm, stability }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn coefficients_match_the_closed_form() {
        let thresholds = AutomaticClipping::new().thresholds(0).unwrap();
        let norms: [f64; 4] = [0.0, 0.01, 1.0, 1e6];
        let table = [norms.iter().map(|norm| norm * norm).collect::<Vec<_>>()];
        let found = thresholds.coefficients(&table, |_| true);
        for (&norm, &coefficient) in norms.iter().zip(found.of_group(0)) {
            let expected = 1.0 / (norm + 0.01);
            assert!((f64::from(coefficient) / expected - 1.0).abs() < 1.1e-6, "{norm}");
            assert!(f64::from(coefficient) * norm < 1.0);
        }
        assert_eq!(thresholds.total_norm(), 1.0);
    }

    #[test]
    fn the_description_has_both_settings() {
        let clipping = AutomaticClipping::new().with_norm(2.5).unwrap();
        let clipping = clipping.with_stability(0.25).unwrap();
        let expected = "automatic, per-example gradients times 2.5 / (L2 norm + 0.25)";
        assert_eq!(clipping.describe(), expected);
    }
}
