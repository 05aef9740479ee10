use burn::nn::activation::SwiGlu;
use burn::tensor::{Tensor, activation::silu};

use super::linear::linear;
use super::private::Private;

impl Private<SwiGlu> {
    /// Applies the gated linear unit: `silu(inner(input)) · outer(input)`.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_input]`
    /// - output: `[batch_size, …, d_output]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_input`, or if `input` has no batch axis.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        swiglu(&self.inner, input)
    }
}

/// Computes the forward pass of the layer on its own or as part of another layer.
pub(super) fn swiglu<const D: usize>(layer: &SwiGlu, input: Tensor<D>) -> Tensor<D> {
    silu(linear(&layer.linear_inner, input.clone())) * linear(&layer.linear_outer, input)
}
