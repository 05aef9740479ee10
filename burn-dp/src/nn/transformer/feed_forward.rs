use burn::nn::transformer::PositionWiseFeedForward;
use burn::tensor::Tensor;

use super::super::linear::linear;
use super::super::private::Private;

impl Private<PositionWiseFeedForward> {
    /// Applies the layer.
    ///
    /// Burn keeps the activation of this layer out of the module tree, so that parameters of an
    /// activation (SwiGLU, PReLU) are constants: they are neither trained nor saved, here as there.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_model]`
    /// - output: `[batch_size, …, d_model]`
    ///
    /// # Panics
    ///
    /// As a private linear layer.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        feed_forward(&self.inner, input)
    }
}

/// The forward pass of a layer that may be a part of another one.
pub(super) fn feed_forward<const D: usize>(
    layer: &PositionWiseFeedForward,
    input: Tensor<D>,
) -> Tensor<D> {
    let hidden = layer.activation.forward(linear(&layer.linear_inner, input));
    linear(&layer.linear_outer, layer.dropout.forward(hidden))
}
