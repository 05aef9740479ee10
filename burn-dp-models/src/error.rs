//! Errors of model files.

use std::fmt;
use std::path::{Path, PathBuf};

use burn_dp_examples::training::TrainError;

/// A file of a model that cannot be used; the message names the value and a remedy.
pub struct ModelError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub reason: String,
}

impl ModelError {
    /// Creates the error of a file.
    pub fn new(path: impl AsRef<Path>, reason: impl fmt::Display) -> Self {
        Self { path: path.as_ref().into(), reason: reason.to_string() }
    }
}

/// The message, because a `main` that returns the error prints it.
impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for ModelError {}

impl From<ModelError> for TrainError {
    fn from(ModelError { path, reason }: ModelError) -> Self {
        Self::Record { path, reason }
    }
}
