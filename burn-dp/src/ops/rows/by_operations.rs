//! The kernels implemented with Burn's operations.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};

/// Returns the last axis.
fn last<B: Backend>(tensor: &FloatTensor<B>) -> usize {
    tensor.shape().num_dims() - 1
}

/// See [`RowOps::row_softmax`](super::RowOps::row_softmax).
pub(in crate::ops) fn softmax<B: Backend>(input: FloatTensor<B>) -> FloatTensor<B> {
    let axis = last::<B>(&input);
    B::softmax(input, axis)
}

/// See [`RowOps::row_softmax_input_gradient`](super::RowOps::row_softmax_input_gradient).
pub(in crate::ops) fn softmax_input_gradient<B: Backend>(
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let axis = last::<B>(&output);
    let mean = B::float_sum_dim(B::float_mul(output.clone(), grad.clone()), axis);
    B::float_mul(output, B::float_sub(grad, mean))
}

/// See [`RowOps::row_normalize`](super::RowOps::row_normalize).
pub(in crate::ops) fn normalize<B: Backend>(
    input: FloatTensor<B>,
    epsilon: f64,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let axis = last::<B>(&input);
    let mean = B::float_mean_dim(input.clone(), axis);
    let centered = B::float_sub(input, mean);
    let squares = B::float_mul(centered.clone(), centered.clone());
    let variance = B::float_add_scalar(B::float_mean_dim(squares, axis), epsilon.into());
    let deviation = B::float_sqrt(variance);
    (B::float_div(centered, deviation.clone()), B::float_recip(deviation))
}

/// See [`RowOps::row_normalize_input_gradient`](super::RowOps::row_normalize_input_gradient).
pub(in crate::ops) fn normalize_input_gradient<B: Backend>(
    output: FloatTensor<B>,
    scale: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let axis = last::<B>(&output);
    let along = B::float_mean_dim(B::float_mul(output.clone(), grad.clone()), axis);
    let centered = B::float_sub(grad.clone(), B::float_mean_dim(grad, axis));
    B::float_mul(B::float_sub(centered, B::float_mul(output, along)), scale)
}
