//! The error type of the crate.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use burn_dp_accountant::{AccountantError, Rounded};

mod fault;

pub use fault::{Fault, FaultKind, Faults};

/// Errors of this crate.
///
/// Each message names the value and a remedy. Mistakes in tensor shapes panic, as in Burn.
#[non_exhaustive]
pub enum DpError {
    /// An argument is out of its range or does not fit the others. Pass another value.
    InvalidArgument {
        /// Name of the argument as in the signature, or of the setting: `steps` of `with_steps`.
        name: &'static str,
        /// The value, and the expected one.
        reason: String,
    },
    /// One part of a model cannot be trained privately. Replace or freeze it; see
    /// [`validate`](crate::model::validate).
    UnsupportedModel {
        /// Path of the parameter or module, for example `encoder.norm`; empty for the whole model.
        path: String,
        /// Why, and what to use instead.
        reason: String,
    },
    /// A model, or an update of it, differs from the earlier or configured one. Pass the model that
    /// was trained.
    OtherModel {
        /// Path of the first parameter that does not fit.
        path: String,
        /// The actual state, and the expected one.
        reason: String,
    },
    /// Several parts of a model cannot be trained privately. Replace or freeze them; each fault
    /// names its replacement.
    UnsupportedParts(Faults),
    /// A value of the model that is not trained changed during the run. What a forward pass stores
    /// of the examples would be published without noise.
    ChangedBuffer {
        /// Path of the value, for example `norm.running_mean`.
        path: String,
    },
    /// Losses (or features) do not belong to single examples: they are not one value per example,
    /// one example affects the value of another, or the values are random. Return one loss per
    /// example, as in [`losses`](crate::losses), and avoid operations across the batch.
    NotPerExample {
        /// The actual state, and the expected one.
        reason: String,
    },
    /// The next step would exceed the privacy budget. Nothing was released, and the model trained
    /// so far is within the budget.
    BudgetExhausted {
        /// ε after the rejected step.
        epsilon: f64,
        /// ε of the budget.
        budget: f64,
        /// δ of both.
        delta: f64,
        /// Number of steps that were released.
        steps: u64,
    },
    /// A call is not allowed in the current state of the run or of its folder, for example a
    /// checkpoint within a logical batch. The message names the point at which it is allowed.
    InvalidState {
        /// The state, and a remedy.
        reason: String,
    },
    /// A checkpoint, a record, a key or a log is damaged, missing, in use, or belongs to another
    /// run. Load the state of this run. A new run spends its own budget on the same data.
    SavedState {
        /// The difference, and a remedy.
        reason: String,
    },
    /// A record, a ledger or a line of a log cannot be encoded, for example a record that is too
    /// large to be read back.
    Encoding {
        /// What cannot be encoded.
        what: String,
        /// The cause.
        reason: String,
    },
    /// A tensor cannot be read from its device, for example because the device was lost. Resume
    /// from the last checkpoint.
    Device {
        /// The tensor and the cause.
        reason: String,
    },
    /// A sum to be released is not finite. Nothing was released. Give units whose norm is not
    /// finite the weight zero before they are summed, as the clipping of this crate does.
    NotFinite {
        /// What was to be released.
        what: &'static str,
    },
    /// The data set cannot load an item, so its step did not run. Repair the item, because leaving
    /// it out would change the data set that the guarantee covers.
    Dataset {
        /// The error of the data set.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system cannot start the thread that loads batches ahead. End other programs,
    /// or load without a thread; see
    /// [`with_prefetch`](crate::sampling::PrivateDataLoaderBuilder::with_prefetch).
    Thread(std::io::Error),
    /// A [`ReleaseStore`](crate::checkpoint::ReleaseStore) failed. The release was not made. Repair
    /// the store, and resume from the last record.
    Store {
        /// The error of the store.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system, or the browser, provides no entropy for the noise. There is no weaker
    /// fallback.
    Entropy(String),
    /// An error of the accountant. It cannot compute a number, for example the noise multiplier for
    /// a budget that no noise can meet.
    Accountant(AccountantError),
    /// A file cannot be read or written. Check the path and its permissions.
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// An error that ended training with Burn's learner. It is shared, because the learner and the
    /// caller both receive it.
    Training(Arc<DpError>),
    /// An error of Burn's learner itself, for example in the validation.
    Learner(String),
}

impl DpError {
    /// Creates an [`InvalidArgument`](Self::InvalidArgument) error.
    pub(crate) fn invalid(name: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { name, reason: reason.into() }
    }

    /// Creates an [`InvalidState`](Self::InvalidState) error.
    pub(crate) fn state(reason: impl Into<String>) -> Self {
        Self::InvalidState { reason: reason.into() }
    }

    /// Creates a [`SavedState`](Self::SavedState) error.
    pub(crate) fn saved_state(reason: impl Into<String>) -> Self {
        Self::SavedState { reason: reason.into() }
    }

    /// Creates an [`Encoding`](Self::Encoding) error.
    pub(crate) fn encoding(what: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Encoding { what: what.into(), reason: cause.to_string() }
    }

    /// Creates a [`Device`](Self::Device) error.
    pub(crate) fn device(reason: impl Into<String>) -> Self {
        Self::Device { reason: reason.into() }
    }

    /// Creates a [`Dataset`](Self::Dataset) error.
    pub(crate) fn dataset(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Dataset { source: Box::new(source) }
    }

    /// Creates an [`Io`](Self::Io) error.
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}

/// The message, because a `main` that returns the error prints it.
impl fmt::Debug for DpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { name, reason } => write!(f, "{name} {reason}"),
            Self::UnsupportedModel { path, reason } if path.is_empty() => {
                write!(f, "the model cannot be trained privately: {reason}")
            }
            Self::UnsupportedModel { path, reason } => {
                write!(f, "`{path}` cannot be trained privately: {reason}")
            }
            Self::UnsupportedParts(faults) => {
                write!(f, "the model cannot be trained privately:\n{faults}")
            }
            Self::OtherModel { path, reason } => write!(f, "`{path}` does not fit: {reason}"),
            Self::ChangedBuffer { path } => write!(
                f,
                "`{path}` cannot be published: it is not trained, but it changed, or was not \
                 there when the run began: what a forward pass stores of the examples would be \
                 published without noise; give the same model to every call, remove the layer, \
                 put it into evaluation mode, or, if only public data changed it, begin with \
                 `updates::private_copy` or call `DpOptimizer::accept_public_buffers`"
            ),
            Self::NotPerExample { reason } => write!(f, "cannot compute per example: {reason}"),
            Self::BudgetExhausted { epsilon, budget, delta, steps } => write!(
                f,
                "the next step would spend epsilon = {} at delta = {delta:e}, more than the budget \
                 of {budget}; {steps} steps were released and nothing more was",
                Rounded::up(*epsilon)
            ),
            Self::InvalidState { reason } => f.write_str(reason),
            Self::SavedState { reason } => write!(f, "saved state refused: {reason}"),
            Self::Encoding { what, reason } => write!(f, "{what} cannot be encoded: {reason}"),
            Self::Device { reason } => write!(f, "cannot read from the device: {reason}"),
            Self::NotFinite { what } => write!(
                f,
                "{what} must be finite, got an infinity or NaN; nothing was released. Give units \
                 whose norm is not finite the weight zero before they are summed"
            ),
            Self::Dataset { source } => write!(f, "the data set cannot load an item: {source}"),
            Self::Thread(source) => write!(
                f,
                "the loader thread cannot be started: {source}; end other programs, or set \
                 `with_prefetch(0)`"
            ),
            Self::Store { source } => write!(
                f,
                "a release cannot be stored ({source}), so it was not made; make the store \
                 writable, and resume from the last record"
            ),
            Self::Entropy(reason) => {
                write!(f, "there is no entropy of the system or browser for the noise: {reason}")
            }
            Self::Accountant(error) => write!(f, "{error}"),
            Self::Io { path, source } => {
                write!(f, "{}: {source}{}", path.display(), way_out(source.kind()))
            }
            Self::Training(error) => write!(f, "{error}"),
            Self::Learner(error) => write!(f, "the learner of Burn failed: {error}"),
        }
    }
}

/// Returns a remedy for an error of the operating system.
fn way_out(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free space, and try again",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; make it readable and writable for this user, or choose another path"
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            "; move away what is there, or choose another path"
        }
        ErrorKind::InvalidFilename => "; choose another path",
        _ => "",
    }
}

impl std::error::Error for DpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Accountant(error) => Some(error),
            Self::UnsupportedParts(faults) => Some(faults),
            Self::Io { source, .. } => Some(source),
            Self::Dataset { source } | Self::Store { source } => Some(&**source),
            Self::Thread(source) => Some(source),
            Self::Training(error) => error.source(),
            _ => None,
        }
    }
}

impl From<Fault> for DpError {
    fn from(fault: Fault) -> Self {
        Self::UnsupportedModel { path: fault.path, reason: fault.reason }
    }
}

impl From<Faults> for DpError {
    fn from(faults: Faults) -> Self {
        Self::UnsupportedParts(faults)
    }
}

impl From<AccountantError> for DpError {
    fn from(error: AccountantError) -> Self {
        Self::Accountant(error)
    }
}

/// Checks that a number is positive and finite.
///
/// # Errors
///
/// Returns [`DpError::InvalidArgument`] if it is not.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<(), DpError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(DpError::invalid(name, format!("must be positive and finite, got {value}")))
}

/// Checks that a number is at least 1.
///
/// # Errors
///
/// Returns [`DpError::InvalidArgument`] if it is zero.
pub(crate) fn at_least_one(name: &'static str, value: usize) -> Result<(), DpError> {
    match value {
        0 => Err(DpError::invalid(name, "must be at least 1, got 0")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::error::Error;
    use std::io;

    use super::*;

    #[test]
    fn messages_name_value_and_way_out() {
        let spent = DpError::BudgetExhausted {
            epsilon: 3.000_000_1, // rounded up, so that it is not the budget
            budget: 3.0,
            delta: 1e-5,
            steps: 7,
        };
        let model = DpError::UnsupportedModel { path: "norm".into(), reason: "use X".into() };
        let nothing =
            DpError::UnsupportedModel { path: String::new(), reason: "nothing trains".into() };
        let other = DpError::OtherModel { path: "norm".into(), reason: "it has 3 values".into() };
        let losses = DpError::NotPerExample { reason: "got 1 for 8 rows".into() };
        for (error, message) in [
            (positive("lr", -1.0).unwrap_err(), "lr must be positive and finite, got -1"),
            (at_least_one("epochs", 0).unwrap_err(), "epochs must be at least 1, got 0"),
            (model, "`norm` cannot be trained privately: use X"),
            (nothing, "the model cannot be trained privately: nothing trains"),
            (other, "`norm` does not fit: it has 3 values"),
            (losses, "cannot compute per example: got 1 for 8 rows"),
            (
                DpError::ChangedBuffer { path: "norm.mean".into() },
                "`norm.mean` cannot be published: it is not trained, but it changed, or was not \
                 there when the run began: what a forward pass stores of the examples would be \
                 published without noise; give the same model to every call, remove the layer, \
                 put it into evaluation mode, or, if only public data changed it, begin with \
                 `updates::private_copy` or call `DpOptimizer::accept_public_buffers`",
            ),
            (
                DpError::NotFinite { what: "sums" },
                "sums must be finite, got an infinity or NaN; nothing was released. Give units \
                 whose norm is not finite the weight zero before they are summed",
            ),
            (
                spent,
                "the next step would spend epsilon = 3.00001 at delta = 1e-5, more than the \
                 budget of 3; 7 steps were released and nothing more was",
            ),
            (DpError::state("finish the step first"), "finish the step first"),
            (DpError::saved_state("it is cut off"), "saved state refused: it is cut off"),
            (DpError::encoding("the ledger", "NaN"), "the ledger cannot be encoded: NaN"),
            (DpError::Learner("no data".into()), "the learner of Burn failed: no data"),
            (DpError::device("lost"), "cannot read from the device: lost"),
        ] {
            assert_eq!(error.to_string(), message);
            assert!(error.source().is_none(), "{message}");
        }
    }

    #[test]
    fn sources_are_kept() {
        let source = || io::Error::other("disk");
        let shared = DpError::Training(Arc::new(DpError::dataset(source())));
        for (error, message) in [
            (DpError::dataset(source()), "the data set cannot load an item: disk"),
            (DpError::io("run/log", source()), "run/log: disk"),
            (
                DpError::Thread(source()),
                "the loader thread cannot be started: disk; end other programs, or set \
                 `with_prefetch(0)`",
            ),
            (
                DpError::Store { source: Box::new(source()) },
                "a release cannot be stored (disk), so it was not made; make the store writable, \
                 and resume from the last record",
            ),
            (shared, "the data set cannot load an item: disk"),
        ] {
            assert_eq!(error.to_string(), message);
            assert_eq!(error.source().unwrap().to_string(), "disk");
        }
    }
}
