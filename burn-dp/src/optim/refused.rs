use std::fmt;

use crate::DpError;

/// A step that was rejected or failed, with the model.
///
/// In almost all cases the step was rejected before anything was released, and the model is
/// unchanged. The exception is a [`Sparsifier`](super::Sparsifier) or a
/// [`WeightAverage`](super::WeightAverage) that cannot process the model of a released step: then
/// the release is in the ledger and the model includes the update.
/// [`DpOptimizer::step`](super::DpOptimizer::step) lists the errors of both kinds.
///
/// `?` turns it into a [`DpError`] and drops the model; in a function with another error type,
/// write `.map_err(DpError::from)?`. Match on it to keep the model.
pub struct RefusedStep<M> {
    model: M,
    error: DpError,
}

impl<M> RefusedStep<M> {
    pub(crate) fn new(model: M, error: DpError) -> Box<Self> {
        Box::new(Self { model, error })
    }

    /// Waits for a step: turns an asynchronous call into a blocking one.
    ///
    /// # Arguments
    ///
    /// - `instead`: the asynchronous call, for the message of the error in a browser, where nothing
    ///   can wait
    pub(super) fn blocking(
        model: M,
        step: impl AsyncFnOnce(M) -> Result<M, Box<Self>>,
        instead: &str,
    ) -> Result<M, Box<Self>>
    where
        M: Clone,
    {
        // Natively no copy of the model is kept: the optimizer changes its weights in place.
        #[cfg(not(target_family = "wasm"))]
        {
            let _ = instead;
            crate::device_read::wait(step(model))
        }
        #[cfg(target_family = "wasm")]
        {
            let refused = Self::new(model.clone(), crate::device_read::not_ready(instead));
            crate::device_read::at_once(step(model)).unwrap_or(Err(refused))
        }
    }

    /// Returns the reason for the error.
    pub fn error(&self) -> &DpError {
        &self.error
    }

    /// Returns the model: unchanged, or after the step if it was released.
    pub fn into_model(self) -> M {
        self.model
    }
}

opaque_debug!(RefusedStep<M>, |this| error: this.error);

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

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn the_error_of_the_step_is_the_source() {
        let refused = RefusedStep::new((), DpError::state("no step"));
        let source = refused.source().map(ToString::to_string);
        assert_eq!(source, Some(refused.error().to_string()));
    }
}
