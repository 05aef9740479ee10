//! Clipping policies: from the gradients of single units to a sum of bounded sensitivity.
//!
//! A [`Clipping`] policy says for each step what to clip to, its [`Thresholds`]. From that one value
//! follow the coefficients of the units, the sensitivity of their sum, its noise, and the event that
//! the ledger gets. A source of gradients
//! ([`PerExampleGradients`]) tells norms, multiplies, and adds up to
//! a [`ClippedSum`], which remembers its thresholds.
//!
//! | policy | thresholds |
//! |---|---|
//! | [`FlatClipping`] | one for the whole gradient |
//! | [`AutomaticClipping`] | none to tune: every gradient is scaled to the same norm |
//! | [`GroupedClipping`] | one for each layer, module or group of parameters |
//! | [`QuantileClipping`] | those that a given fraction of the units stays below, estimated privately |
//! | [`LayerwiseClipping`] | one for each layer, in proportion to the norms on public data |
//! | [`MultipliedClipping`] | one for the whole gradient, whose layers are brought to similar norms first |
//! | [`ScheduledClipping`] | those of another policy times a factor that changes over the steps |
//! | [`QuantileTracker`] | those of another policy, or none: it estimates quantiles and means of norms privately |

mod automatic;
mod clipped_sum;
mod coefficients;
mod count;
mod flat;
mod grouped;
mod layerwise;
mod multiplied;
mod public_norms;
mod quantile;
mod quantile_estimate;
mod quantile_tracker;
mod scheduled;
mod step_noise;
mod thresholds;

pub use automatic::AutomaticClipping;
pub use clipped_sum::{ClippedSum, ClippingStatistics};
pub(crate) use coefficients::Coefficients;
pub use count::{Count, CountNoise, Counted};
pub use flat::FlatClipping;
pub use grouped::GroupedClipping;
pub use layerwise::LayerwiseClipping;
pub use multiplied::MultipliedClipping;
pub use public_norms::PublicNorms;
pub use quantile::QuantileClipping;
pub use quantile_estimate::{QuantileEstimate, QuantileRule};
pub use quantile_tracker::QuantileTracker;
pub use scheduled::ScheduledClipping;
pub use step_noise::{NoiseSplit, StepNoise};
pub use thresholds::Thresholds;

use crate::DpError;
use crate::grads::PerExampleGradients;

/// A policy that bounds what one privacy unit contributes to the sum of gradients.
///
/// # Privacy
///
/// A policy cannot break the guarantee of a step, whatever it does: coefficients, noise and event are
/// those of the [`Thresholds`] that it gave. It must keep one promise: thresholds depend on nothing but
/// constants, public data, and the noisy counts that it was given.
pub trait Clipping: std::fmt::Debug + Send + Sync + CloneClipping {
    /// What to clip to in a step. Asked once for each step, before its first unit.
    ///
    /// # Errors
    ///
    /// When a threshold is not positive and finite.
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError>;

    /// What a privacy statement says of the policy: its settings, not its present state. Two policies
    /// with the same words continue each other's runs.
    fn describe(&self) -> String;

    /// Takes what a step released of its counts: for each, the noisy fraction of units at or below the
    /// threshold, or the noisy mean of what else the units contribute.
    fn learn(&mut self, step: u64, fractions: &[f64]) {
        let _ = (step, fractions);
    }

    /// Takes norms of gradients on public data, between two steps.
    ///
    /// # Errors
    ///
    /// Refuses norms that the policy has no use for.
    fn learn_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        let _ = norms;
        let reason = format!("have no use in the clipping policy ({})", self.describe());
        Err(DpError::invalid("public norms", reason))
    }

    /// The numbers that the policy adapts, as they are now, by name. They are public: they follow from
    /// what was released.
    fn adapted(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// What changed since the policy was made, for a checkpoint.
    fn save_state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Goes back to a saved state.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] for a state that is not one of this policy.
    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        match state {
            serde_json::Value::Null => Ok(()),
            _ => Err(DpError::state(format!(
                "the clipping policy ({}) has no state, and the checkpoint has one for it; resume \
                 with the policy of the run",
                self.describe()
            ))),
        }
    }

    /// Clips each unit to the thresholds of the first step, and adds up; see [`Thresholds::clip`].
    ///
    /// # Errors
    ///
    /// As [`Thresholds::clip`].
    fn clip(&self, grads: PerExampleGradients) -> Result<ClippedSum, DpError> {
        self.thresholds(0)?.clip(grads)
    }
}

impl Thresholds {
    /// Clips each unit and adds up.
    ///
    /// # Errors
    ///
    /// Fails if the norms cannot be read from the device, or a parameter belongs to no group.
    pub fn clip(&self, grads: PerExampleGradients) -> Result<ClippedSum, DpError> {
        let squared_norms = grads.squared_norms(self.groups())?;
        let coefficients = self.coefficients(&squared_norms, |unit| grads.is_real(unit));
        let sums = grads.weighted_sum(&coefficients, self.groups())?;
        Ok(ClippedSum::new(sums, self.clone(), coefficients))
    }
}

/// Positive numbers, as many as groups, from the state of a policy.
fn saved_norms(state: &serde_json::Value, groups: usize) -> Result<Vec<f64>, DpError> {
    let values: Option<Vec<f64>> = serde_json::from_value(state.clone()).ok();
    values
        .filter(|values| values.len() == groups)
        .filter(|values| values.iter().all(|&value| value > 0.0 && value.is_finite()))
        .ok_or_else(|| {
            DpError::state(format!(
                "the state of the clipping policy is {state}, and {groups} positive numbers are \
                 expected; resume with the policy of the run"
            ))
        })
}

/// Policies are cloned with the configuration that holds them.
#[doc(hidden)]
pub trait CloneClipping {
    fn clone_clipping(&self) -> Box<dyn Clipping>;
}

impl<C: Clipping + Clone + 'static> CloneClipping for C {
    fn clone_clipping(&self) -> Box<dyn Clipping> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Clipping> {
    fn clone(&self) -> Self {
        (**self).clone_clipping()
    }
}

impl Clipping for Box<dyn Clipping> {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        (**self).thresholds(step)
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn learn(&mut self, step: u64, fractions: &[f64]) {
        (**self).learn(step, fractions);
    }

    fn learn_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        (**self).learn_public(norms)
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        (**self).adapted()
    }

    fn save_state(&self) -> serde_json::Value {
        (**self).save_state()
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        (**self).load_state(state)
    }
}
