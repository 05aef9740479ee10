use burn::nn::Linear;
use burn::tensor::{Tensor, assert_shape};

use super::Private;
use crate::ops::{self, LayerIds};

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

/// The forward pass of a linear layer that may be a part of another one.
pub(super) fn linear<const D: usize>(layer: &Linear, input: Tensor<D>) -> Tensor<D> {
    assert!(D >= 2, "the input of a private linear layer needs a batch axis, got rank {D}");
    let weight = layer.weight.val();
    let [d_input, _] = weight.dims();
    assert_shape!(input, [.., d_input]);

    let ids = LayerIds { weight: layer.weight.id, bias: layer.bias.as_ref().map(|bias| bias.id) };
    ops::linear(input, weight, layer.bias.as_ref().map(|bias| bias.val()), ids)
}
