use std::fmt;

use crate::DpError;

/// A step that was refused before anything was released, with the model as it was.
///
/// `?` turns it into a [`DpError`] and drops the model; match on it where the model is still wanted.
pub struct RefusedStep<M> {
    model: M,
    error: DpError,
}

impl<M> RefusedStep<M> {
    pub(crate) fn new(model: M, error: DpError) -> Box<Self> {
        Box::new(Self { model, error })
    }

    /// Why the step was refused.
    pub fn error(&self) -> &DpError {
        &self.error
    }

    /// The model, unchanged.
    pub fn into_model(self) -> M {
        self.model
    }
}

impl<M> fmt::Debug for RefusedStep<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedStep").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for RefusedStep<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M> std::error::Error for RefusedStep<M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<M> From<Box<RefusedStep<M>>> for DpError {
    fn from(refused: Box<RefusedStep<M>>) -> Self {
        refused.error
    }
}
