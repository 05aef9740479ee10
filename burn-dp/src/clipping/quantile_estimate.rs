//! A quantile that is followed by noisy fractions.

use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::error::positive;

/// Largest value of an estimate: far beyond all norms, and small enough to be squared.
const LARGEST: f64 = 1e60;

/// How an estimate moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantileRule {
    /// `C ← C − η (b̃ − γ)`: a step is at most η times one unit of the norm.
    Linear,
    /// `C ← C exp(−η (b̃ − γ))`: orders of magnitude are crossed in few steps. The default.
    #[default]
    Geometric,
}

/// An estimate of the γ-quantile of a distribution, which moves until a fraction γ of the values is at
/// or below it.
///
/// It is gradient descent on the expected loss `(1−γ)(C−X)` for `X ≤ C`, `γ(X−C)` otherwise, whose
/// derivative is `P[X ≤ C] − γ`.
///
/// # Privacy
///
/// Public: it sees noisy fractions and nothing else.
///
/// # References
///
/// Andrew, Thakkar, McMahan, Ramaswamy, Differentially private learning with adaptive clipping, 2021,
/// sections 2.1 and 2.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuantileEstimate {
    value: f64,
    target: f64,
    floor: f64,
}

impl QuantileEstimate {
    /// Starts at `initial` to look for the `target` quantile. The floor of the estimate is a billionth
    /// of where it starts.
    ///
    /// # Errors
    ///
    /// Refuses a target outside of 0 to 1, and an initial value that is not positive and at most 1e60.
    pub fn new(target: f64, initial: f64) -> Result<Self, DpError> {
        if !(0.0..=1.0).contains(&target) {
            let reason = format!("must be between 0 and 1, got {target}");
            return Err(DpError::invalid("target_quantile", reason));
        }
        positive("initial threshold", initial)?;
        if initial > LARGEST {
            let reason = format!("must be at most {LARGEST:e}, got {initial}");
            return Err(DpError::invalid("initial threshold", reason));
        }
        Ok(Self { value: initial, target, floor: initial / 1e9 })
    }

    /// The smallest value that the estimate takes.
    ///
    /// # Errors
    ///
    /// Refuses a floor that is not positive, or is above the estimate.
    pub fn with_floor(mut self, floor: f64) -> Result<Self, DpError> {
        positive("floor", floor)?;
        if floor > self.value {
            let reason =
                format!("must be at most the initial threshold {}, got {floor}", self.value);
            return Err(DpError::invalid("floor", reason));
        }
        self.floor = floor;
        Ok(self)
    }

    /// The estimate.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The quantile that is looked for.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// The floor.
    pub fn floor(&self) -> f64 {
        self.floor
    }

    /// Moves by the noisy fraction of values that are at most [`value`](Self::value).
    pub fn update(&mut self, rule: QuantileRule, learning_rate: f64, fraction: f64) {
        let step = learning_rate * (fraction - self.target);
        let moved = match rule {
            QuantileRule::Linear => self.value - step,
            QuantileRule::Geometric => self.value * (-step).exp(),
        };
        // A value that is not a number stays where it was.
        if !moved.is_nan() {
            self.value = moved.clamp(self.floor, LARGEST);
        }
    }

    /// The same estimate with a saved value.
    pub(super) fn restored(&self, value: f64) -> Option<Self> {
        let known = (self.floor..=LARGEST).contains(&value);
        known.then(|| Self { value, ..self.clone() })
    }
}

/// Restores the values of estimates from a saved list.
pub(super) fn restore(
    estimates: &mut [QuantileEstimate],
    state: &serde_json::Value,
) -> Result<(), DpError> {
    let values: Option<Vec<f64>> = serde_json::from_value(state.clone()).ok();
    let restored = values.filter(|values| values.len() == estimates.len()).and_then(|values| {
        estimates.iter().zip(values).map(|(estimate, value)| estimate.restored(value)).collect()
    });
    let restored: Vec<QuantileEstimate> = restored.ok_or_else(|| {
        DpError::state(format!(
            "the thresholds of the clipping policy are {state}, and {} of them are expected; resume \
             with the policy of the run",
            estimates.len()
        ))
    })?;
    estimates.clone_from_slice(&restored);
    Ok(())
}

/// The values of estimates, to be saved.
pub(super) fn saved(estimates: &[QuantileEstimate]) -> serde_json::Value {
    estimates.iter().map(QuantileEstimate::value).collect()
}

/// Refuses a learning rate η_C with which an estimate would not move, or to the wrong side.
pub(super) fn check_learning_rate(learning_rate: f64) -> Result<(), DpError> {
    if learning_rate >= 0.0 && learning_rate.is_finite() {
        return Ok(());
    }
    let reason = format!("must be finite and not negative, got {learning_rate}");
    Err(DpError::invalid("quantile_lr", reason))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Fraction of an exponential distribution with mean `mean` at or below `x`.
    fn exponential(mean: f64, x: f64) -> f64 {
        1.0 - (-x / mean).exp()
    }

    #[test]
    fn one_update_has_its_closed_form() {
        let mut linear = QuantileEstimate::new(0.5, 2.0).unwrap();
        linear.update(QuantileRule::Linear, 0.2, 0.9);
        assert!((linear.value() - 1.92).abs() < 1e-15);
        let mut geometric = QuantileEstimate::new(0.5, 2.0).unwrap();
        geometric.update(QuantileRule::Geometric, 0.2, 0.9);
        assert!((geometric.value() - 2.0 * (-0.08f64).exp()).abs() < 1e-15);
    }

    #[test]
    fn without_noise_both_rules_come_to_the_quantile() {
        for (target, start) in [(0.1, 1.0), (0.5, 0.1), (0.9, 3.0)] {
            let truth = -(1.0f64 - target).ln();
            for rule in [QuantileRule::Linear, QuantileRule::Geometric] {
                let mut estimate = QuantileEstimate::new(target, start).unwrap();
                for _ in 0..600 {
                    estimate.update(rule, 0.2, exponential(1.0, estimate.value()));
                }
                assert!((estimate.value() / truth - 1.0).abs() < 0.01, "{rule:?} {target}");
            }
        }
    }

    #[test]
    fn the_extreme_targets_run_to_the_ends_of_the_distribution() {
        // Uniform on 1 to 3: the minimum and the maximum.
        let fraction = |x: f64| ((x - 1.0) / 2.0).clamp(0.0, 1.0);
        for (target, end) in [(0.0, 1.0), (1.0, 3.0)] {
            let mut estimate = QuantileEstimate::new(target, 2.0).unwrap();
            for _ in 0..400 {
                estimate.update(QuantileRule::Geometric, 0.2, fraction(estimate.value()));
            }
            assert!((estimate.value() - end).abs() < 0.05, "{target} {}", estimate.value());
        }
    }

    #[test]
    fn an_estimate_stays_positive_and_finite_whatever_the_fraction() {
        for rule in [QuantileRule::Linear, QuantileRule::Geometric] {
            let mut estimate = QuantileEstimate::new(0.5, 1.0).unwrap().with_floor(0.25).unwrap();
            for fraction in [1e9, -1e9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 0.2] {
                estimate.update(rule, 0.2, fraction);
                assert!((0.25..=1e60).contains(&estimate.value()), "{rule:?} {fraction}");
            }
            estimate.update(rule, 0.2, 1e9);
            assert_eq!(estimate.value(), 0.25);
        }
    }

    #[test]
    fn impossible_settings_are_refused() {
        for target in [-0.1, 1.1, f64::NAN] {
            assert!(QuantileEstimate::new(target, 1.0).is_err());
        }
        for initial in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e61] {
            assert!(QuantileEstimate::new(0.5, initial).is_err());
        }
        let estimate = QuantileEstimate::new(0.5, 1.0).unwrap();
        assert!(estimate.clone().with_floor(0.0).is_err());
        assert!(estimate.with_floor(2.0).is_err());
    }
}
