//! Learning rates that do not depend on private data.

use burn::lr_scheduler::LrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::{
    ModuleLearningRate, ModuleLrScheduler, ModuleLrSchedulerConfig,
};

use crate::DpError;

/// A learning rate that depends only on public values: the step, and constants.
///
/// # Privacy
///
/// Learning rates reach the model without noise. A rate that is reduced when the training loss
/// stops falling depends on every private example, and no ε covers that. Burn's schedulers are
/// functions of the step, so their configurations are accepted.
///
/// `PrivateModel::learner` takes a schedule. In a loop of your own, pass
/// [`next_rate`](Self::next_rate) to [`DpOptimizer::step`](super::DpOptimizer::step).
///
/// # Example
///
/// ```
/// use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
/// use burn_dp::optim::PublicSchedule;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let schedule = PublicSchedule::new(LinearLrSchedulerConfig::new(0.5, 0.1, 200))?;
/// let mut schedule = schedule.after(100); // of a run that is resumed after 100 steps
/// let rate = schedule.next_rate();
/// assert!((rate.base() - 0.3).abs() < 0.01);
/// # Ok(())
/// # }
/// ```
///
/// A scheduler that may follow anything is not a public schedule:
///
/// ```compile_fail
/// # use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
/// # use burn_dp::optim::PublicSchedule;
/// # fn follows_the_loss(scheduler: ModuleLrScheduler) -> PublicSchedule {
/// scheduler.into()
/// # }
/// ```
#[derive(Clone)]
pub struct PublicSchedule(ModuleLrScheduler);

opaque_debug!(PublicSchedule);

impl PublicSchedule {
    /// Creates the schedule of a configuration of Burn; a number is a constant learning rate.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if Burn rejects the configuration.
    pub fn new(config: impl Into<LrSchedulerConfig>) -> Result<Self, DpError> {
        Self::of_groups(&ModuleLrSchedulerConfig::new(config.into()))
    }

    /// Creates the schedule of a configuration with groups of parameters.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if Burn rejects the configuration.
    pub fn of_groups(config: &ModuleLrSchedulerConfig) -> Result<Self, DpError> {
        config.init().map(Self).map_err(|reason| DpError::invalid("config", reason))
    }

    /// Declares that a custom scheduler depends only on public values.
    ///
    /// # Privacy
    ///
    /// This cannot be checked. The step, constants, [public data](crate::PublicData), and values
    /// that the run released, such as the clipping norm metric, are public.
    pub fn declared_public(scheduler: impl Into<ModuleLrScheduler>) -> Self {
        Self(scheduler.into())
    }

    /// Returns the learning rate of the next step.
    pub fn next_rate(&mut self) -> ModuleLearningRate {
        self.0.step()
    }

    /// Returns the schedule after this many more steps, for a run that is resumed. Calls the
    /// scheduler once for each of them, because a scheduler of Burn cannot skip steps.
    #[must_use]
    pub fn after(mut self, steps: u64) -> Self {
        for _ in 0..steps {
            self.0.step();
        }
        self
    }

    #[cfg(feature = "train")]
    pub(crate) fn into_scheduler(self) -> ModuleLrScheduler {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
    use burn::module::ParamGroup;

    use super::*;

    fn rates(mut schedule: PublicSchedule) -> Vec<f64> {
        (0..3).map(|_| schedule.next_rate().base()).collect()
    }

    #[test]
    fn configurations_of_burn_become_their_schedulers() {
        let linear = || LinearLrSchedulerConfig::new(0.5, 0.1, 2);
        let mut scheduler = linear().init().unwrap();
        let expected: Vec<f64> = (0..3).map(|_| scheduler.step().base()).collect();
        assert_eq!(rates(PublicSchedule::new(linear()).unwrap()), expected);
        let groups = ModuleLrSchedulerConfig::new(linear().into());
        let groups = groups.with_group(ParamGroup::from_predicate("head"), 0.7);
        assert_eq!(rates(PublicSchedule::of_groups(&groups).unwrap()), expected);
        assert_eq!(rates(PublicSchedule::new(0.5).unwrap()), [0.5; 3]);
        let resumed = PublicSchedule::new(linear()).unwrap().after(1);
        assert_eq!(rates(resumed)[..2], expected[1..]);
    }

    #[test]
    fn configurations_that_burn_refuses_are_errors() {
        let error = PublicSchedule::new(LinearLrSchedulerConfig::new(2.0, 0.1, 2)).err().unwrap();
        assert!(matches!(error, DpError::InvalidArgument { name: "config", .. }), "{error}");
    }
}
