//! Scale and shift along one axis, `output = input ∘ weight + bias`: the affine part of every norm,
//! and PReLU, which scales negative values only.

use burn::backend::{Backend, tensor::FloatTensor};
use burn::tensor::Shape;

use super::axes::{four_axes, sum_over_examples};
use crate::ops::Kept;

/// Returns `[batch_size, outer, parameters, inner]`.
pub(in crate::ops) fn layout(shape: &Shape, axis: Option<usize>) -> Shape {
    Shape::new(four_axes(shape, axis))
}

/// Returns the sum of `input ∘ output_grad` over all axes but `axis`, of negative inputs only if
/// `negative`.
pub(in crate::ops) fn weight_gradient<B: Backend>(
    kept: Kept<B>,
    weight: Shape,
    output_grad: FloatTensor<B>,
    axis: Option<usize>,
    negative: bool,
) -> FloatTensor<B> {
    let input = kept.one();
    let input = match negative {
        true => B::float_clamp_max(input, 0.0f32.into()),
        false => input,
    };
    let product = B::float_mul(input, output_grad);
    B::float_reshape(sum_over_examples::<B>(product, axis), weight)
}
