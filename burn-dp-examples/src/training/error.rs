//! Errors of a training run.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use burn_dp::DpError;

use crate::data::DataError;
use crate::plot::PlotError;

/// A run that cannot be started or finished; the message names the value and a remedy.
#[non_exhaustive]
pub enum TrainError {
    /// An option, or several together, that cannot be used.
    Option {
        /// The option as typed, for example `--epsilon`.
        name: Cow<'static, str>,
        /// The given value, the expected one, and a remedy.
        reason: String,
    },
    /// The data cannot be read.
    Data(DataError),
    /// burn-dp rejected the plan, the model, or the state.
    Privacy(DpError),
    /// A saved model or optimizer cannot be written or read.
    Record {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A file cannot be written or read.
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl TrainError {
    /// Creates the error of an option.
    pub fn option(name: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self::Option { name: name.into(), reason: reason.into() }
    }
}

/// The message, because a `main` that returns the error prints it.
impl fmt::Debug for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { name, reason } => write!(f, "{name} {reason}"),
            Self::Data(error) => write!(f, "{error}"),
            Self::Privacy(error) => write!(f, "{error}"),
            Self::Record { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for TrainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Data(error) => Some(error),
            Self::Privacy(error) => Some(error),
            Self::Io { source, .. } => Some(source),
            Self::Option { .. } | Self::Record { .. } => None,
        }
    }
}

impl From<DataError> for TrainError {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}

impl From<burn::data::dataset::DatasetError> for TrainError {
    fn from(error: burn::data::dataset::DatasetError) -> Self {
        Self::Data(DataError::Item { reason: error.to_string() })
    }
}

impl From<PlotError> for TrainError {
    fn from(PlotError { path, source }: PlotError) -> Self {
        Self::Io { path, source }
    }
}

impl From<DpError> for TrainError {
    fn from(error: DpError) -> Self {
        Self::Privacy(error)
    }
}
