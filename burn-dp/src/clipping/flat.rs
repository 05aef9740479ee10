use burn_dp_accountant::NeighboringRelation;

use super::{ClippedSum, Clipping, ClippingStatistics};
use crate::DpError;
use crate::grads::PerExampleGradients;

/// Relative excess of the measured norm that is taken off the coefficient, so that rounding in f32
/// does not lift a clipped gradient over the threshold.
const ROUNDING: f64 = 1.0 / (1 << 20) as f64;

/// Flat clipping: the gradient of each example, over all parameters, is scaled to norm at most
/// `max_grad_norm`.
///
/// # Privacy
///
/// The sum has L2 sensitivity `max_grad_norm` when one unit is added or removed and
/// `2 · max_grad_norm` when one is replaced. An example whose norm is not finite contributes zero; it
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
    /// Clips to `max_grad_norm`.
    ///
    /// # Errors
    ///
    /// Refuses a threshold that is not positive and finite.
    pub fn new(max_grad_norm: f64) -> Result<Self, DpError> {
        if !(max_grad_norm > 0.0 && max_grad_norm.is_finite()) {
            return Err(DpError::invalid(
                "max_grad_norm",
                format!("must be positive and finite, got {max_grad_norm}"),
            ));
        }
        Ok(Self { max_grad_norm })
    }

    /// The threshold.
    pub fn max_grad_norm(&self) -> f64 {
        self.max_grad_norm
    }

    /// Coefficients of the examples, whether to keep their rows at all, and counts.
    pub(crate) fn coefficients(
        &self,
        squared_norms: &[f64],
        is_real: impl Fn(usize) -> bool,
    ) -> (Vec<f32>, Vec<bool>, ClippingStatistics) {
        let mut statistics = ClippingStatistics::default();
        let mut coefficients = Vec::with_capacity(squared_norms.len());
        let mut keep = Vec::with_capacity(squared_norms.len());
        for (index, &squared_norm) in squared_norms.iter().enumerate() {
            let coefficient = self.coefficient(squared_norm);
            keep.push(coefficient.is_some());
            if !is_real(index) {
                coefficients.push(0.0);
                continue;
            }
            coefficients.push(coefficient.unwrap_or(0.0));
            statistics.examples += 1;
            statistics.clipped += usize::from(coefficient.is_some_and(|value| value < 1.0));
            statistics.non_finite += usize::from(coefficient.is_none());
        }
        (coefficients, keep, statistics)
    }

    /// Coefficient for a gradient of that squared norm; `None` if the norm is not finite.
    fn coefficient(&self, squared_norm: f64) -> Option<f32> {
        let norm = squared_norm.sqrt() * (1.0 + ROUNDING);
        if !norm.is_finite() {
            return None;
        }
        if norm <= self.max_grad_norm {
            return Some(1.0);
        }
        let exact = self.max_grad_norm / norm;
        let rounded = exact as f32;
        Some(if f64::from(rounded) > exact { rounded.next_down() } else { rounded })
    }
}

impl Clipping for FlatClipping {
    fn clip(&self, grads: PerExampleGradients) -> Result<ClippedSum, DpError> {
        let squared_norms = grads.squared_norms()?;
        let (coefficients, keep, statistics) =
            self.coefficients(&squared_norms, |index| grads.is_real(index));
        let sums = grads.weighted_sum(&coefficients, &keep);
        Ok(ClippedSum::new(sums, self.max_grad_norm, statistics))
    }

    fn sensitivity(&self, relation: NeighboringRelation) -> f64 {
        relation.sensitivity() * self.max_grad_norm
    }

    fn describe(&self) -> String {
        format!("flat, per-example L2 norm at most {}", self.max_grad_norm)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_coefficient_never_lets_the_product_exceed_the_threshold() {
        for c in [1e-3, 0.1, 1.0, 7.3] {
            let clipping = FlatClipping::new(c).unwrap();
            for exponent in -80..80 {
                let norm = 1.37f64 * 10f64.powf(f64::from(exponent) / 5.0);
                let coefficient = f64::from(clipping.coefficient(norm * norm).unwrap());
                assert!(coefficient * norm <= c * (1.0 + 1e-12), "norm {norm}, threshold {c}");
                assert!(coefficient * norm >= c.min(norm) * (1.0 - 1.2e-6));
            }
        }
    }

    #[test]
    fn the_zero_gradient_is_kept_and_no_other_norm_is_amplified() {
        let clipping = FlatClipping::new(1.0).unwrap();
        assert_eq!(clipping.coefficient(0.0), Some(1.0));
        assert_eq!(clipping.coefficient(1e-300), Some(1.0));
    }

    #[test]
    fn norms_that_are_not_finite_have_no_coefficient() {
        let clipping = FlatClipping::new(1.0).unwrap();
        for norm in [f64::NAN, f64::INFINITY, f64::MAX * 2.0] {
            assert_eq!(clipping.coefficient(norm), None);
        }
    }

    #[test]
    fn thresholds_that_clip_nothing_or_everything_are_refused() {
        for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = FlatClipping::new(norm).unwrap_err().to_string();
            assert!(error.contains("max_grad_norm must be positive and finite"), "{error}");
        }
    }

    #[test]
    fn replacing_a_unit_doubles_the_sensitivity() {
        let clipping = FlatClipping::new(0.5).unwrap();
        assert_eq!(clipping.sensitivity(NeighboringRelation::AddOrRemoveOne), 0.5);
        assert_eq!(clipping.sensitivity(NeighboringRelation::ReplaceOne), 1.0);
    }
}
