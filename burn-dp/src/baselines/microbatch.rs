use burn::module::Module;
use burn::tensor::Tensor;

use crate::DpError;
use crate::clipping::{ClippedSum, Clipping, FlatClipping};
use crate::updates::{UnitUpdate, clip_updates};

/// Returns the clipped sum, computed with one ordinary backward pass for each example. This is
/// slow, and exact for every model whose loss can be computed for one example at a time, with or
/// without private layers.
///
/// # Arguments
///
/// - `loss`: returns the loss of the example with that index, one value
///
/// # Errors
///
/// Returns the errors of [`clip_updates`].
pub fn microbatch<M: Module>(
    clipping: &FlatClipping,
    model: &M,
    examples: usize,
    loss: impl Fn(&M, usize) -> Tensor<1>,
) -> Result<ClippedSum, DpError> {
    clip_updates(&clipping.thresholds(0)?, model, 0..examples, |model, example| {
        UnitUpdate::gradient(&model, loss(&model, example).sum().reshape([1]))
    })
}
