use burn::nn::norm::Normalization;
use burn::tensor::Tensor;

use super::Private;
use super::batch_norm::batch_norm;
use super::group_norm::{group_norm, instance_norm};
use super::{layer_norm::layer_norm, rms_norm::rms_norm};

impl Private<Normalization> {
    /// Applies the wrapped norm.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch_size, channels, …]`, or `[batch_size, …, d_model]` for norms of the
    ///   last axis
    ///
    /// # Panics
    ///
    /// Panics like `forward` of the wrapped norm.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        match &self.inner {
            Normalization::Batch(layer) => batch_norm(layer, input),
            Normalization::Group(layer) => group_norm(layer, input),
            Normalization::Instance(layer) => instance_norm(layer, input),
            Normalization::Layer(layer) => layer_norm(layer, input),
            Normalization::Rms(layer) => rms_norm(layer, input),
            layer => layer.forward(input),
        }
    }
}
