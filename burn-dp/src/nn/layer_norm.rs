use burn::module::{Content, DisplaySettings, ModuleDisplay};
use burn::nn::LayerNorm;
use burn::tensor::{DType, FloatDType, Tensor, assert_shape};

use super::{Private, affine::affine, backend::has_native_kernels};
use crate::ops;

impl Private<LayerNorm> {
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
        layer_norm(&self.inner, input)
    }
}

/// Implements [`Private<LayerNorm>::forward`](Private).
pub(crate) fn layer_norm<const D: usize>(layer: &LayerNorm, input: Tensor<D>) -> Tensor<D> {
    if !input.device().is_autodiff() {
        // Burn's layer is one fused operation, and nothing is trained.
        return layer.forward(input);
    }
    let [d_model] = layer.gamma.dims();
    assert_shape!(input, [.., d_model]);
    let dtype = input.dtype();
    let normalized = normalize(widen(input), epsilon(layer));
    if dtype != DType::F16 {
        return affine(normalized, &layer.gamma, layer.beta.as_ref(), D - 1);
    }
    affine(normalized.cast(FloatDType::F16), &layer.gamma, layer.beta.as_ref(), D - 1)
}

/// Converts half precision, which cannot hold a sum of squares.
fn widen<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    if input.dtype() == DType::F16 { input.cast(FloatDType::F32) } else { input }
}

/// Returns values with zero mean and unit variance over the last axis.
fn normalize<const D: usize>(input: Tensor<D>, epsilon: f64) -> Tensor<D> {
    if has_native_kernels(&input.device()) {
        return ops::row_normalize(input, epsilon);
    }
    let mean = input.clone().mean_dim(D - 1);
    let centered = input - mean;
    let variance = (centered.clone() * centered.clone()).mean_dim(D - 1);
    centered / variance.add_scalar(epsilon).sqrt()
}

/// Returns epsilon, a private field of Burn's layer that its display shows.
fn epsilon(layer: &LayerNorm) -> f64 {
    layer
        .custom_content(Content::new(DisplaySettings::new()))
        .and_then(|content| content.attributes.into_iter().find(|entry| entry.name == "epsilon"))
        .and_then(|entry| entry.value.parse().ok())
        .expect("a LayerNorm shows its epsilon")
}

#[cfg(test)]
mod tests {
    use burn::nn::LayerNormConfig;
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn epsilon_is_read_exactly() {
        for value in [1e-5, 1e-12, 0.1, 3.0, 1.234_567_890_123_456_7e-6, f64::MIN_POSITIVE] {
            let layer = LayerNormConfig::new(4).with_epsilon(value).init(&Device::default());
            assert_eq!(epsilon(&layer), value);
        }
    }
}
