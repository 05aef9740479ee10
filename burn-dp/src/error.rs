//! The error type of the crate.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use burn_dp_accountant::AccountantError;

use crate::model::Faults;

/// Everything that can go wrong outside of programming mistakes.
///
/// Each message names the offending value and the way out. Mistakes in tensor shapes panic, as they
/// do in Burn.
#[derive(Debug)]
#[non_exhaustive]
pub enum DpError {
    /// An argument that cannot be used.
    InvalidArgument {
        /// Name of the argument, as in the signature.
        name: &'static str,
        /// What was given, and what is expected instead.
        reason: String,
    },
    /// A model that cannot be trained privately as it is.
    UnsupportedModel {
        /// Path of the parameter or module, for example `encoder.norm`.
        path: String,
        /// Why, and what to use instead.
        reason: String,
    },
    /// Several parts of a model that cannot be trained privately as they are.
    UnsupportedParts(Faults),
    /// A loss or a recording that does not describe one value per example.
    NotPerExample {
        /// What was seen, and what is expected instead.
        reason: String,
    },
    /// The next release would exceed the privacy budget; nothing was released.
    BudgetExhausted {
        /// ε after the refused release.
        epsilon: f64,
        /// ε that was agreed on.
        budget: f64,
        /// δ at which both are meant.
        delta: f64,
        /// Releases already made.
        steps: u64,
    },
    /// A call that the run does not allow at this point, for example a checkpoint within a logical step.
    InvalidState {
        /// What the run is doing, and the way out.
        reason: String,
    },
    /// Saved state that is damaged or does not belong to this run.
    SavedState {
        /// What differs, and the way out.
        reason: String,
    },
    /// A tensor that could not be read from its device.
    Device {
        /// The cause.
        reason: String,
    },
    /// An item that the data set could not load.
    Dataset {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system gave no entropy.
    Entropy(String),
    /// The accountant refused.
    Accountant(AccountantError),
    /// A file could not be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The error that ended a training under Burn's learner, which others hold too.
    Training(Arc<DpError>),
}

impl DpError {
    /// An [`InvalidArgument`](Self::InvalidArgument).
    pub(crate) fn invalid(name: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { name, reason: reason.into() }
    }

    /// An [`InvalidState`](Self::InvalidState).
    pub(crate) fn state(reason: impl Into<String>) -> Self {
        Self::InvalidState { reason: reason.into() }
    }

    /// A [`SavedState`](Self::SavedState).
    pub(crate) fn saved_state(reason: impl Into<String>) -> Self {
        Self::SavedState { reason: reason.into() }
    }

    /// A [`Device`](Self::Device).
    pub(crate) fn device(reason: impl Into<String>) -> Self {
        Self::Device { reason: reason.into() }
    }

    /// An [`Io`](Self::Io).
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}

impl fmt::Display for DpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { name, reason } => write!(f, "{name} {reason}"),
            Self::UnsupportedModel { path, reason } => {
                write!(f, "`{path}` cannot be trained privately: {reason}")
            }
            Self::UnsupportedParts(faults) => {
                write!(f, "the model cannot be trained privately:\n{faults}")
            }
            Self::NotPerExample { reason } => {
                write!(f, "the losses are not one value per example: {reason}")
            }
            Self::BudgetExhausted { epsilon, budget, delta, steps } => write!(
                f,
                "the next step would spend epsilon = {epsilon:.6} at delta = {delta:e}, more than \
                 the budget of {budget}; {steps} steps were released and nothing more was"
            ),
            Self::InvalidState { reason } => f.write_str(reason),
            Self::SavedState { reason } => write!(f, "saved state refused: {reason}"),
            Self::Device { reason } => write!(f, "cannot read from the device: {reason}"),
            Self::Dataset { source } => write!(f, "the data set cannot load an item: {source}"),
            Self::Entropy(reason) => {
                write!(f, "the operating system gave no entropy for the noise: {reason}")
            }
            Self::Accountant(error) => write!(f, "{error}"),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Training(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for DpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Accountant(error) => Some(error),
            Self::UnsupportedParts(faults) => Some(faults),
            Self::Io { source, .. } => Some(source),
            Self::Dataset { source } => Some(&**source),
            Self::Training(error) => error.source(),
            _ => None,
        }
    }
}

impl From<AccountantError> for DpError {
    fn from(error: AccountantError) -> Self {
        Self::Accountant(error)
    }
}

/// Returns an error unless `value` is positive and finite.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<(), DpError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(DpError::invalid(name, format!("must be positive and finite, got {value}")))
}
