use burn::nn::RmsNorm;
use burn::tensor::{DType, Tensor, assert_shape};

use super::{Private, affine::affine};

impl Private<RmsNorm> {
    /// Applies the norm over the last axis.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch_size, …, d_model]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_model`, or if `input` has no batch axis.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        rms_norm(&self.inner, input)
    }
}

/// Implements [`Private<RmsNorm>::forward`](Private).
pub(crate) fn rms_norm<const D: usize>(layer: &RmsNorm, input: Tensor<D>) -> Tensor<D> {
    let [d_model] = layer.gamma.dims();
    assert_shape!(input, [.., d_model]);
    let dtype = input.dtype();
    let squares = input.clone().cast(DType::F32).square();
    let rms = (squares.mean_dim(D - 1) + layer.epsilon).sqrt();
    affine(input / rms.cast(dtype), &layer.gamma, None, D - 1)
}
