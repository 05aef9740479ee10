use burn::nn::transformer::PositionWiseFeedForward;
use burn::tensor::Tensor;

use super::super::dropout::dropout;
use super::super::linear::linear;
use super::super::private::Private;

impl Private<PositionWiseFeedForward> {
    /// Applies the layer.
    ///
    /// Burn leaves the activation of this layer out of the module tree. As in Burn, the parameters
    /// of an activation (SwiGLU, PReLU) are therefore neither trained nor saved.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_model]`
    /// - output: `[batch_size, …, d_model]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_model`, or if `input` has no batch axis.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        feed_forward(&self.inner, input)
    }
}

/// Computes the forward pass of the layer on its own or as part of another layer.
pub(super) fn feed_forward<const D: usize>(
    layer: &PositionWiseFeedForward,
    input: Tensor<D>,
) -> Tensor<D> {
    let hidden = layer.activation.forward(linear(&layer.linear_inner, input));
    linear(&layer.linear_outer, dropout(&layer.dropout, hidden))
}
