//! A bare parameter; every example gets a copy of it.

use burn::backend::{Backend, tensor::FloatTensor};
use burn::tensor::Shape;

/// Returns `[batch_size, values]`.
pub(in crate::ops) fn layout(shape: &Shape) -> Shape {
    Shape::new([shape[0], shape.iter().skip(1).product()])
}

/// Adds up the gradients of the copies.
pub(in crate::ops) fn weight_gradient<B: Backend>(
    weight: Shape,
    output_grad: FloatTensor<B>,
) -> FloatTensor<B> {
    B::float_reshape(B::float_sum_dim(output_grad, 0), weight)
}
