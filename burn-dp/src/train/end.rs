//! The end of a training run.

use std::fmt;

use burn::train::LearningResult;

use super::PrivateTraining;
use crate::DpError;

/// How a training ended without an error; returned by [`PrivateTraining::finish`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainingEnd {
    /// All steps of the plan were taken.
    Complete {
        /// Number of steps.
        steps: u64,
    },
    /// The training ended before the last step of the plan: the budget was spent, or Burn's loop
    /// ended.
    Stopped {
        /// Number of steps that were taken.
        steps: u64,
        /// Number of steps of the plan.
        planned: u64,
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for TrainingEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete { steps } => write!(f, "all {steps} planned steps were made"),
            Self::Stopped { steps, planned, reason } => {
                write!(f, "stopped after {steps} of {planned} steps: {reason}")
            }
        }
    }
}

impl PrivateTraining {
    /// Returns how the training run with this result ended. Even a failed run has a model in its
    /// result, so call this before the model is used.
    ///
    /// Burn's terminal dashboard drops errors and the reason for a stop, and then the result does
    /// not contain them either. This method still returns what ended the private run: the plan, the
    /// budget, or an error in the training data, in a step, or in a checkpoint. If the dashboard
    /// dropped an error in the validation, only Burn's log and the missing steps remain as
    /// evidence.
    ///
    /// # Errors
    ///
    /// Returns the error that ended the training: [`DpError::Training`], or [`DpError::Learner`]
    /// for an error of Burn itself.
    pub fn finish<M>(&self, result: &LearningResult<M>) -> Result<TrainingEnd, DpError> {
        if let Some(error) = self.error() {
            return Err(DpError::Training(error));
        }
        if let Some(error) = &result.error {
            return Err(DpError::Learner(error.to_string()));
        }
        let planned = self.session.with_engine(|engine| engine.plan.steps());
        let steps = self.next_step();
        if steps >= planned {
            return Ok(TrainingEnd::Complete { steps });
        }
        let reason = self.stopped().or_else(|| self.interrupter().get_message());
        let reason = reason.unwrap_or_else(|| {
            "Burn's loop ended: by early stopping, after fewer epochs than planned, by its \
             interrupter, or by an error that its dashboard dropped and its log may have"
                .into()
        });
        Ok(TrainingEnd::Stopped { steps, planned, reason })
    }
}
