use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use crate::DpError;
use crate::clipping::thresholds::Thresholds;
use crate::error::positive;

/// Flat clipping: scales the gradient of each example, over all parameters, to norm at most
/// `max_grad_norm`.
///
/// # Privacy
///
/// The sum has L2 sensitivity `max_grad_norm` if a unit is added or removed, and
/// `2 · max_grad_norm` if one is replaced. An example whose norm is not finite contributes zero. It
/// is left out by selection, not by a product, so that it cannot spread NaN.
///
/// | norm of the example | coefficient |
/// |---|---|
/// | 0 | 1 |
/// | at most `max_grad_norm` | 1 |
/// | larger | `max_grad_norm / norm`, rounded down |
/// | infinite or NaN, also by overflow | 0 |
///
/// # References
///
/// Abadi et al., Deep learning with differential privacy, 2016, section 3.1.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatClipping {
    max_grad_norm: f64,
}

impl FlatClipping {
    /// Creates the policy with the threshold `max_grad_norm`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the threshold is not positive and finite.
    pub fn new(max_grad_norm: f64) -> Result<Self, DpError> {
        positive("max_grad_norm", max_grad_norm)?;
        Ok(Self { max_grad_norm })
    }

    /// Returns the threshold.
    pub fn max_grad_norm(&self) -> f64 {
        self.max_grad_norm
    }
}

impl Clipping for FlatClipping {
    fn thresholds(&self, _step: u64) -> Result<Thresholds, DpError> {
        Thresholds::whole(self.max_grad_norm)
    }

    fn describe(&self) -> String {
        format!("flat, L2 norm of each unit at most {}", self.max_grad_norm)
    }

    fn to_config(&self, _: Seal) -> Option<ClippingConfig> {
        Some(ClippingConfig(Settings::Flat { max_grad_norm: self.max_grad_norm }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::NeighboringRelation;

    use super::*;

    #[test]
    fn invalid_max_grad_norm_is_refused_by_name() {
        for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = FlatClipping::new(norm).unwrap_err().to_string();
            assert!(error.contains("max_grad_norm must be positive and finite"), "{error}");
        }
    }

    #[test]
    fn replacing_a_unit_doubles_the_sensitivity() {
        let clipping = FlatClipping::new(0.5).unwrap();
        assert_eq!(clipping.max_grad_norm(), 0.5);
        assert!(clipping.describe().contains("at most 0.5"), "{}", clipping.describe());
        assert!(clipping.adapted().is_empty());
        let thresholds = clipping.thresholds(3).unwrap();
        assert_eq!(thresholds.sensitivity(NeighboringRelation::AddOrRemoveOne), 0.5);
        assert_eq!(thresholds.sensitivity(NeighboringRelation::ReplaceOne), 1.0);
    }
}
