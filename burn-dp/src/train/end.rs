//! The end of a training run.

use std::fmt;

/// How a training ended without an error; returned by
/// [`PrivateTraining::finish`](super::PrivateTraining::finish).
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
