use std::fmt;

use burn::lr_scheduler::LrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::{ModuleLrScheduler, ModuleLrSchedulerConfig};
use burn::optim::ModuleOptimizer;
use burn::train::{InferenceStep, Learner};

use super::{PrivateModel, PrivateTrainStep};
use crate::DpError;

/// A learning rate that depends only on public values: the step, and constants.
///
/// # Privacy
///
/// Learning rates reach the model without noise. A rate that is reduced when the training loss
/// stops falling depends on every private example, and no ε covers that. Burn's schedulers are
/// functions of the step, so their configurations are accepted.
///
/// # Example
///
/// ```
/// use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
/// use burn_dp::train::PublicSchedule;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let schedule = PublicSchedule::new(LinearLrSchedulerConfig::new(0.5, 0.1, 200))?;
/// let constant = PublicSchedule::new(0.5)?;
/// # let _ = (schedule, constant);
/// # Ok(())
/// # }
/// ```
///
/// A scheduler that may follow anything is not a public schedule:
///
/// ```compile_fail
/// # use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
/// # use burn_dp::train::PublicSchedule;
/// # fn follows_the_loss(scheduler: ModuleLrScheduler) -> PublicSchedule {
/// scheduler.into()
/// # }
/// ```
#[derive(Clone)]
pub struct PublicSchedule(ModuleLrScheduler);

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
        config.init().map(Self).map_err(|reason| DpError::invalid("lr", reason))
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

    pub(super) fn into_scheduler(self) -> ModuleLrScheduler {
        self.0
    }
}

impl<M: PrivateTrainStep> PrivateModel<M> {
    /// Returns Burn's learner, with a learning rate that depends only on public values.
    ///
    /// # Privacy
    ///
    /// Burn's `Learner::new` accepts the model as well, with any scheduler: a scheduler that
    /// follows the training loss, or private validation data, releases them without noise.
    pub fn learner(self, optimizer: ModuleOptimizer, schedule: PublicSchedule) -> Learner<Self>
    where
        M: InferenceStep + fmt::Display + 'static,
    {
        Learner::new(self, optimizer, schedule.into_scheduler())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
    use burn::module::ParamGroup;

    use super::*;

    fn rates(schedule: PublicSchedule) -> Vec<f64> {
        let mut scheduler = schedule.into_scheduler();
        (0..3).map(|_| scheduler.step().base()).collect()
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
    }

    #[test]
    fn configurations_that_burn_refuses_are_errors() {
        let error = PublicSchedule::new(LinearLrSchedulerConfig::new(2.0, 0.1, 2)).err().unwrap();
        assert!(matches!(error, DpError::InvalidArgument { name: "lr", .. }), "{error}");
    }
}
