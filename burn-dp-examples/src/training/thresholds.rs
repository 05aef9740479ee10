//! Thresholds that the policies of several training modes share.

use burn_dp::clipping::{Clipping, ScheduledClipping};
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
