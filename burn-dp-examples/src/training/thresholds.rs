//! Thresholds that the policies of several trainings share.

use burn_dp::DpError;
use burn_dp::clipping::{Clipping, PublicNorms, ScheduledClipping};
use burn_dp::model::ParameterGroups;
use burn_dp::schedule::Schedule;

use super::TrainError;

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

/// Returns the layers with these norms, merged into `count` groups of similar norms.
///
/// # Errors
///
/// Returns [`DpError`] if the norms are of no example.
pub(super) fn merged(norms: &PublicNorms, count: usize) -> Result<ParameterGroups, DpError> {
    let means = norms.means()?;
    // A layer without any gradient gets the smallest norm.
    let least = means.iter().copied().filter(|&norm| norm > 0.0).fold(f64::MAX, f64::min);
    let means: Vec<f64> = means.into_iter().map(|norm| norm.max(least)).collect();
    norms.groups().merged_by_norm(&means, count)
}
