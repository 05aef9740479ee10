//! How a training ended.

use std::fmt;

use burn::train::LearningResult;

use super::PrivateTraining;
use crate::DpError;

/// How a training ended without an error; told by [`PrivateTraining::finish`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainingEnd {
    /// All steps of the plan were made.
    Complete {
        /// How many.
        steps: u64,
    },
    /// The training ended before the last step of the plan: because of the budget, or because
    /// Burn's loop did.
    Stopped {
        /// Steps that were made.
        steps: u64,
        /// Steps of the plan.
        planned: u64,
        /// Why.
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
    /// How the training with this result ended. The model of a training that failed is in the
    /// result like any other, so ask before it is used.
    ///
    /// Burn's terminal dashboard forgets errors and the reason of a stop, and then they are not in
    /// the result either. What ended the private run is known here all the same: what the plan, the
    /// budget, the data of the training, its steps and its checkpoints did. Of an error in the
    /// validation that the dashboard has forgotten nothing is left but Burn's log, and that steps
    /// of the plan were not made.
    ///
    /// # Errors
    ///
    /// The error that ended the training: [`DpError::Training`], or [`DpError::Io`] for one of
    /// Burn's own.
    pub fn finish<M>(&self, result: &LearningResult<M>) -> Result<TrainingEnd, DpError> {
        if let Some(error) = self.error() {
            return Err(DpError::Training(error));
        }
        if let Some(error) = &result.error {
            return Err(DpError::io("training", std::io::Error::other(error.clone())));
        }
        let planned = self.session.with_engine(|engine| engine.plan.steps());
        let steps = self.next_step();
        if steps >= planned {
            return Ok(TrainingEnd::Complete { steps });
        }
        let reason = self.stopped().or_else(|| self.interrupter().get_message());
        let reason = reason.unwrap_or_else(|| {
            "Burn's loop ended: by early stopping, after fewer epochs than planned, by its interrupter, or by an \
             error that its dashboard has forgotten and its log may have"
                .into()
        });
        Ok(TrainingEnd::Stopped { steps, planned, reason })
    }
}
