//! Checks of a private backward pass while it runs.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::DpError;
use crate::ops::recording::Recorder;

/// A check of one backward pass. It may replace the losses, and it wraps the recorder of the pass,
/// so it receives every record first.
pub(crate) trait PassCheck {
    /// The wrapped recorder.
    type Recorder<R: Recorder + 'static>: Recorder + 'static;

    /// Starts the check of one pass. Returns the losses of the pass, and its recorder.
    ///
    /// # Shapes
    ///
    /// - losses: `[units · group_size]`
    fn begin<M: Module, R: Recorder + 'static>(
        &mut self,
        losses: Tensor<1>,
        group_size: usize,
        model: &M,
        recorder: R,
    ) -> (Tensor<1>, Self::Recorder<R>);

    /// Ends the check after the pass. Returns the recorder that was wrapped.
    ///
    /// # Errors
    ///
    /// Returns an error if the check finds a fault.
    async fn end<R: Recorder + 'static>(
        &mut self,
        recorder: Self::Recorder<R>,
    ) -> Result<R, DpError>;
}

/// No check.
impl PassCheck for () {
    type Recorder<R: Recorder + 'static> = R;

    fn begin<M: Module, R: Recorder + 'static>(
        &mut self,
        losses: Tensor<1>,
        _: usize,
        _: &M,
        recorder: R,
    ) -> (Tensor<1>, R) {
        (losses, recorder)
    }

    async fn end<R: Recorder + 'static>(&mut self, recorder: R) -> Result<R, DpError> {
        Ok(recorder)
    }
}
