//! Thresholds that the policies of several training modes share.

use burn_dp::clipping::{Clipping, ScheduledClipping};
use burn_dp::schedule::Schedule;
use clap::Args;
use serde::Serialize;

use super::options::headings;
use super::{TrainError, checks};

/// Changes of the thresholds of every policy.
#[derive(Args, Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = headings::LAYERS)]
pub struct LayerOptions {
    /// Factor of the thresholds after each pass over the data (for users: after as many rounds as
    /// draw each user once on average).
    #[arg(long, value_name = "D", default_value_t = 1.0, allow_hyphen_values = true)]
    pub threshold_decay: f64,
    /// Merge layers (for users: parameters) of similar norms on public data into this many groups
    /// (clipping per-layer, layerwise, zhang and multipliers).
    #[arg(long, value_name = "N")]
    pub layer_groups: Option<usize>,
}

impl LayerOptions {
    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an impossible number.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        checks::positive([("--threshold-decay", self.threshold_decay)])?;
        checks::at_least_one(self.layer_groups.map(|groups| ("--layer-groups", groups)))
    }
}

/// Returns the policy with its thresholds multiplied by `decay` after each pass over the data.
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the decay is not positive and finite.
pub(super) fn decaying(
    policy: Box<dyn Clipping>,
    decay: f64,
    steps_per_epoch: usize,
) -> Result<Box<dyn Clipping>, TrainError> {
    if decay == 1.0 {
        return Ok(policy);
    }
    let schedule = Schedule::exponential(decay, steps_per_epoch as u64)?;
    Ok(Box::new(ScheduledClipping::new(policy, schedule)))
}
