//! Linear layers, `output = input @ weight + bias`, and their transposed twin.

use burn::backend::{Backend, tensor::FloatTensor};
use burn::tensor::Shape;

use crate::ops::Kept;

/// Returns `[batch_size, positions, features]`: all axes between the first and the last are
/// positions.
pub(in crate::ops) fn layout(shape: &Shape) -> Shape {
    let rank = shape.num_dims();
    let positions = shape.iter().skip(1).take(rank - 2).product();
    Shape::new([shape[0], positions, shape[rank - 1]])
}

/// Returns `Σ inputᵀ output_grad`.
pub(in crate::ops) fn weight_gradient<B: Backend>(
    kept: Kept<B>,
    output_grad: FloatTensor<B>,
) -> FloatTensor<B> {
    B::linear_weight_backward(kept.one(), output_grad)
}

/// Returns `Σ output_gradᵀ input`.
pub(in crate::ops) fn transposed_weight_gradient<B: Backend>(
    kept: Kept<B>,
    output_grad: FloatTensor<B>,
) -> FloatTensor<B> {
    B::linear_weight_backward(output_grad, kept.one())
}
