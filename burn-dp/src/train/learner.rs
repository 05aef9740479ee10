//! Burn's learner for a private model.

use std::fmt;

use burn::optim::ModuleOptimizer;
use burn::train::{InferenceStep, Learner};

use super::{PrivateModel, PrivateTrainStep};
use crate::optim::PublicSchedule;

impl<M: PrivateTrainStep> PrivateModel<M> {
    /// Returns Burn's learner, with a learning rate that depends on public values alone.
    ///
    /// # Privacy
    ///
    /// Burn's `Learner::new` accepts the model as well, with any scheduler: one that follows the
    /// training loss, or private validation data, releases them without noise.
    pub fn learner(self, optimizer: ModuleOptimizer, schedule: PublicSchedule) -> Learner<Self>
    where
        M: InferenceStep + fmt::Display + 'static,
    {
        Learner::new(self, optimizer, schedule.into_scheduler())
    }
}
