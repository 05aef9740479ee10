//! Standardized weights: the gradient of the stored weight.
//!
//! The kernel of each output channel is `u = s · (w - mean(w))` with `s = 1 / √max(‖w - mean(w)‖²,
//! epsilon)`. If `g` is the gradient of `u`, the gradient of `w` is `s · (g - mean(g) - ⟨u, g⟩ u)`,
//! without the last term where epsilon is the maximum.

use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings, tensor::FloatTensor};
use burn::tensor::Shape;

/// Returns the gradients of the stored weight from the gradients of the standardized one.
///
/// - gradients, output: `[rows, values]`, the values in the order of the weight
/// - weight: `[channels_out, …]`, as it is stored
pub(in crate::ops) fn gradients<B: Backend>(
    gradients: FloatTensor<B>,
    weight: FloatTensor<B>,
    epsilon: f64,
) -> FloatTensor<B> {
    let (shape, channels) = (gradients.shape(), weight.shape()[0]);
    let inputs = shape[1] / channels;
    let weight = B::float_reshape(weight, Shape::new([1, channels, inputs]));
    let mean = B::float_mean_dim(weight.clone(), 2);
    let centered = B::float_sub(weight, mean);
    let squares = B::float_sum_dim(B::float_mul(centered.clone(), centered.clone()), 2);
    let scale = B::float_clamp_min(squares.clone(), epsilon.into());
    let scale = B::float_recip(B::float_sqrt(scale));
    // Where epsilon is the maximum, the scale is a constant.
    let unit = B::float_mul(centered, scale.clone());
    let settings = get_or_init_device_settings::<B>(&unit.device());
    let constant = B::float_lower_equal_elem(squares, epsilon.into(), settings.bool_dtype);
    let constant = B::bool_expand(constant, unit.shape());
    let unit = B::float_mask_fill(unit, constant, 0.0f32.into());

    let gradients = B::float_reshape(gradients, Shape::new([shape[0], channels, inputs]));
    let along = B::float_sum_dim(B::float_mul(gradients.clone(), unit.clone()), 2);
    let mean = B::float_mean_dim(gradients.clone(), 2);
    let rest = B::float_sub(B::float_sub(gradients, mean), B::float_mul(along, unit));
    B::float_reshape(B::float_mul(rest, scale), shape)
}
