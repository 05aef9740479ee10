//! Embeddings, `output[i, t] = weight[ids[i, t]]`.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;

pub(in crate::ops) use super::linear::layout;
use crate::ops::Kept;

/// Adds every position of the gradient to the row of its index. The gradient at an index outside
/// the weight is NaN, and is added to the nearest row.
pub(in crate::ops) fn weight_gradient<B: Backend>(
    kept: Kept<B>,
    weight: Shape,
    output_grad: FloatTensor<B>,
) -> FloatTensor<B> {
    // Burn's gradient takes the weight, but uses only its shape.
    let last = weight[0].saturating_sub(1) as i64;
    let weight = B::float_empty(weight, &output_grad.device(), output_grad.dtype().into());
    B::embedding_backward(weight, output_grad, B::int_clamp(kept.ids(), 0i64.into(), last.into()))
}
