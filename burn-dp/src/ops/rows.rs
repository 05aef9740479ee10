//! Softmax and normalization over the last axis by Burn's operations.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};

use super::primitives::axes::{mean_axis, sum_axis};

/// Returns the last axis.
fn last<B: Backend>(tensor: &FloatTensor<B>) -> usize {
    tensor.shape().num_dims() - 1
}

/// See [`LayerOps::row_softmax`](super::LayerOps::row_softmax).
pub(super) fn softmax<B: Backend>(input: FloatTensor<B>) -> FloatTensor<B> {
    let axis = last::<B>(&input);
    B::softmax(input, axis)
}

/// See [`LayerOps::row_softmax_input_gradient`](super::LayerOps::row_softmax_input_gradient).
pub(super) fn softmax_input_gradient<B: Backend>(
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let axis = last::<B>(&output);
    let mean = sum_axis::<B>(B::float_mul(output.clone(), grad.clone()), axis);
    B::float_mul(output, B::float_sub(grad, mean))
}

/// See [`LayerOps::row_normalize`](super::LayerOps::row_normalize).
pub(super) fn normalize<B: Backend>(
    input: FloatTensor<B>,
    epsilon: f64,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let axis = last::<B>(&input);
    let mean = mean_axis::<B>(input.clone(), axis);
    let centered = B::float_sub(input, mean);
    let squares = B::float_mul(centered.clone(), centered.clone());
    let variance = B::float_add_scalar(mean_axis::<B>(squares, axis), epsilon.into());
    let deviation = B::float_sqrt(variance);
    (B::float_div(centered, deviation.clone()), B::float_recip(deviation))
}

/// See [`LayerOps::row_normalize_input_gradient`](super::LayerOps::row_normalize_input_gradient).
pub(super) fn normalize_input_gradient<B: Backend>(
    output: FloatTensor<B>,
    scale: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let axis = last::<B>(&output);
    let along = mean_axis::<B>(B::float_mul(output.clone(), grad.clone()), axis);
    let centered = B::float_sub(grad.clone(), mean_axis::<B>(grad, axis));
    B::float_mul(B::float_sub(centered, B::float_mul(output, along)), scale)
}
