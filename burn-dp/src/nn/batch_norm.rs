use burn::module::Param;
use burn::nn::BatchNorm;
use burn::tensor::{Tensor, assert_shape};

use super::{Private, affine::affine};
use crate::ops;

impl Private<BatchNorm> {
    /// Wraps the layer so that it normalizes with its stored statistics and never changes them. Its
    /// scale and shift are trained if they require gradients.
    pub fn with_stored_statistics(mut layer: BatchNorm) -> Self {
        layer.training = Param::from_bool(false);
        Self::new(layer)
    }

    /// Applies the norm with the stored statistics.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch_size, num_features, …]`
    ///
    /// # Privacy
    ///
    /// Statistics of a batch mix its examples, and running statistics are published with the model,
    /// without noise. The layer therefore only uses the stored statistics, which must come from
    /// public data.
    ///
    /// # Panics
    ///
    /// Panics if the layer is in training mode on an autodiff device, or if axis 1 of `input` is
    /// not `num_features`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        batch_norm(&self.inner, input)
    }
}

/// Implements [`Private<BatchNorm>::forward`](Private).
pub(crate) fn batch_norm<const D: usize>(layer: &BatchNorm, input: Tensor<D>) -> Tensor<D> {
    let [num_features] = layer.gamma.dims();
    assert_shape!(input, [_, num_features, ..]);
    let device = input.device();
    assert!(
        !(device.is_autodiff() && layer.training.is_enabled()),
        "a BatchNorm in training mode mixes the examples of a batch; use GroupNorm, LayerNorm or \
         InstanceNorm, or `Private::<BatchNorm>::with_stored_statistics`"
    );
    if !device.is_autodiff() {
        // Burn's layer is one fused operation, and nothing is trained.
        return layer.forward(input);
    }
    let mean = layer.running_mean.value().to_device(&device);
    let variance = layer.running_var.value().to_device(&device);
    let scale = variance.add_scalar(layer.epsilon).sqrt().recip();
    // In one pass over the input.
    let normalized = ops::affine(input, scale.clone(), Some(-mean * scale), 1);
    affine(normalized, &layer.gamma, Some(&layer.beta), 1)
}
