use burn::nn::Linear;
use burn::tensor::{Tensor, assert_shape, module};

use super::Private;
use crate::ops::{self, Primitive};

impl Private<Linear> {
    /// Applies the linear layer.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_input]`
    /// - output: `[batch_size, …, d_output]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_input`, or if `input` has no batch axis: an
    /// example needs an axis of its own, also in a batch of one.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        linear(&self.inner, input)
    }
}

/// See [`Private<Linear>::forward`](Private).
pub(crate) fn linear<const D: usize>(layer: &Linear, input: Tensor<D>) -> Tensor<D> {
    assert!(D >= 2, "the input of a private linear layer needs a batch axis, got rank {D}");
    let [d_input, _] = layer.weight.dims();
    assert_shape!(input, [.., d_input]);
    let kept = input.clone();
    ops::apply(
        &layer.weight,
        layer.bias.as_ref(),
        Primitive::Linear,
        || ops::keep(kept),
        |weight, bias| module::linear(input, weight, bias),
    )
}
