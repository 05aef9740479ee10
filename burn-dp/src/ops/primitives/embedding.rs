//! Embeddings, `output[i, t] = weight[ids[i, t]]`.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;

pub(in crate::ops) use super::linear::layout;
use crate::ops::Kept;

/// Adds every position of the gradient to the row of its index.
pub(in crate::ops) fn weight_gradient<B: Backend>(
    kept: Kept<B>,
    weight: Shape,
    output_grad: FloatTensor<B>,
) -> FloatTensor<B> {
    // Burn's gradient asks for the weight, but uses only its shape.
    let weight = B::float_empty(weight, &output_grad.device(), output_grad.dtype().into());
    B::embedding_backward(weight, output_grad, kept.ids())
}
