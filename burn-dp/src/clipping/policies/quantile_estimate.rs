//! Quantiles that follow noisy fractions.

use serde::{Deserialize, Serialize};

use super::saved_values::saved_values;
use crate::DpError;
use crate::error::positive;
use crate::schedule::Schedule;

/// Maximum value of an estimate: far above all norms, and small enough to be squared.
const LARGEST: f64 = 1e10;

/// How an estimate moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantileRule {
    /// `C ← C − η (b̃ − γ)`: one update changes the norm by at most η, apart from noise.
    Linear,
    /// `C ← C exp(−η (b̃ − γ))`: few updates change the norm by orders of magnitude. The default.
    #[default]
    Geometric,
}

/// An estimate of the γ-quantile of a distribution. It moves until a fraction γ of the values is at
/// or below it.
///
/// The updates are gradient descent on the expected loss `(1−γ)(C−X)` for `X ≤ C`, `γ(X−C)`
/// otherwise, whose derivative is `P[X ≤ C] − γ`.
///
/// # Privacy
///
/// Public: it depends only on noisy fractions.
///
/// # References
///
/// Andrew, Thakkar, McMahan, Ramaswamy, Differentially private learning with adaptive clipping,
/// 2021, sections 2.1 and 2.2.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantileEstimate {
    value: f64,
    target: f64,
    floor: f64,
}

impl QuantileEstimate {
    /// Creates an estimate of the `target` quantile that starts at `initial`. Its floor is a
    /// billionth of `initial`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `target` is not between 0 and 1, or if `initial` is
    /// not positive and at most 1e10.
    pub fn new(target: f64, initial: f64) -> Result<Self, DpError> {
        if !(0.0..=1.0).contains(&target) {
            let reason = format!("must be between 0 and 1, got {target}");
            return Err(DpError::invalid("target", reason));
        }
        positive("initial", initial)?;
        if initial > LARGEST {
            let reason = format!("must be at most {LARGEST:e}, got {initial}");
            return Err(DpError::invalid("initial", reason));
        }
        Ok(Self { value: initial, target, floor: initial / 1e9 })
    }

    /// Sets the smallest value of the estimate.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the floor is not positive, or is above the estimate.
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

    /// Returns the estimate.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Returns the target quantile γ.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// Returns the smallest value of the estimate.
    pub fn floor(&self) -> f64 {
        self.floor
    }

    /// Moves the estimate by the noisy fraction of values that are at most [`value`](Self::value).
    pub fn update(&mut self, rule: QuantileRule, learning_rate: f64, fraction: f64) {
        let step = learning_rate * (fraction - self.target);
        let moved = match rule {
            QuantileRule::Linear => self.value - step,
            QuantileRule::Geometric => self.value * (-step).exp(),
        };
        // NaN leaves the estimate as it was.
        if !moved.is_nan() {
            self.value = moved.clamp(self.floor, LARGEST);
        }
    }
}

/// How a policy moves its estimates over the steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EstimateUpdates {
    pub(super) rule: QuantileRule,
    learning_rate: f64,
    pub(super) schedule: Schedule,
}

impl Default for EstimateUpdates {
    fn default() -> Self {
        Self { rule: QuantileRule::default(), learning_rate: 0.2, schedule: Schedule::constant() }
    }
}

impl EstimateUpdates {
    /// Sets the learning rate η_C.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if it is negative or not finite.
    pub(super) fn with_learning_rate(self, learning_rate: f64) -> Result<Self, DpError> {
        Self { learning_rate, ..self }.checked()
    }

    pub(super) fn checked(self) -> Result<Self, DpError> {
        if self.learning_rate >= 0.0 && self.learning_rate.is_finite() {
            return Ok(self);
        }
        let reason = format!("must be finite and not negative, got {}", self.learning_rate);
        Err(DpError::invalid("learning_rate", reason))
    }

    /// Returns the learning rate of a step.
    pub(super) fn learning_rate(&self, step: u64) -> f64 {
        self.learning_rate * self.schedule.factor(step)
    }

    /// Moves each estimate by its noisy fraction.
    pub(super) fn apply(&self, estimates: &mut [QuantileEstimate], step: u64, fractions: &[f64]) {
        let learning_rate = self.learning_rate(step);
        for (estimate, &fraction) in estimates.iter_mut().zip(fractions) {
            estimate.update(self.rule, learning_rate, fraction);
        }
    }
}

impl std::fmt::Display for EstimateUpdates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, learning_rate, schedule } = self;
        let rule = match rule {
            QuantileRule::Linear => "linear",
            QuantileRule::Geometric => "geometric",
        };
        write!(f, "the {rule} rule with learning rate {learning_rate} ({schedule})")
    }
}

/// Returns the values of the estimates, to be saved.
pub(super) fn save(estimates: &[QuantileEstimate]) -> serde_json::Value {
    estimates.iter().map(QuantileEstimate::value).collect()
}

/// Restores the values of the estimates from a saved list.
///
/// # Errors
///
/// Returns [`DpError::SavedState`] if the list does not have one value in range for each estimate.
pub(super) fn restore(
    estimates: &mut [QuantileEstimate],
    state: &serde_json::Value,
) -> Result<(), DpError> {
    let in_range = |index: usize, value| (estimates[index].floor..=LARGEST).contains(&value);
    let values = saved_values("thresholds", state, estimates.len(), in_range)?;
    estimates.iter_mut().zip(values).for_each(|(estimate, value)| estimate.value = value);
    Ok(())
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
    fn one_update_matches_the_closed_form() {
        let mut linear = QuantileEstimate::new(0.5, 2.0).unwrap();
        linear.update(QuantileRule::Linear, 0.2, 0.9);
        assert!((linear.value() - 1.92).abs() < 1e-15);
        let mut geometric = QuantileEstimate::new(0.5, 2.0).unwrap();
        geometric.update(QuantileRule::Geometric, 0.2, 0.9);
        assert!((geometric.value() - 2.0 * (-0.08f64).exp()).abs() < 1e-15);
    }

    #[test]
    fn both_rules_converge_to_the_quantile_without_noise() {
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
    fn extreme_targets_converge_to_the_ends_of_the_distribution() {
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
    fn estimate_stays_in_range_for_any_fraction() {
        for rule in [QuantileRule::Linear, QuantileRule::Geometric] {
            let mut estimate = QuantileEstimate::new(0.5, 1.0).unwrap().with_floor(0.25).unwrap();
            for fraction in [1e9, -1e9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 0.2] {
                estimate.update(rule, 0.2, fraction);
                assert!((0.25..=1e10).contains(&estimate.value()), "{rule:?} {fraction}");
            }
            estimate.update(rule, 0.2, 1e9);
            assert_eq!(estimate.value(), 0.25);
        }
    }

    #[test]
    fn invalid_settings_are_refused() {
        for target in [-0.1, 1.1, f64::NAN] {
            assert!(QuantileEstimate::new(target, 1.0).is_err());
        }
        for initial in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e61] {
            assert!(QuantileEstimate::new(0.5, initial).is_err());
        }
        let estimate = QuantileEstimate::new(0.5, 1.0).unwrap();
        assert!(estimate.clone().with_floor(0.0).is_err());
        assert!(estimate.clone().with_floor(1.0).is_ok());
        assert!(estimate.with_floor(2.0).is_err());
    }
}
