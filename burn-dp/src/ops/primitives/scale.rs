//! Scale and shift along one axis, `output = input ∘ weight + bias`: the affine part of every norm,
//! and PReLU, which only scales negative values.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;

use super::axes::{four_axes, sum_over_examples};
use crate::ops::Kept;

/// Returns `[batch_size, outer, parameters, inner]`.
pub(in crate::ops) fn layout(shape: &Shape, axis: Option<usize>) -> Shape {
    Shape::new(four_axes(shape, axis))
}

/// Returns `input ∘ weight + bias`, both along `axis`.
pub(in crate::ops) fn affine<B: Backend>(
    input: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    axis: usize,
) -> FloatTensor<B> {
    let shape = input.shape();
    let sizes = (0..shape.num_dims()).map(|dim| if dim == axis { shape[dim] } else { 1 });
    let along = Shape::from(sizes.collect::<Vec<_>>());
    let scaled = B::float_mul(input, B::float_reshape(weight, along.clone()));
    match bias {
        Some(bias) => B::float_add(scaled, B::float_reshape(bias, along)),
        None => scaled,
    }
}

/// Returns the sum of `input ∘ output_grad` over all axes except `axis`, only for negative inputs
/// if `negative`.
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
