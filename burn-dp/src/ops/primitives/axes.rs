use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{Shape, Slice};

/// The length of an axis that is reduced at once. Mesa's Vulkan driver for the CPU ends a loop
/// after about twice this number of iterations without an error, so a longer sum could lack its
/// end.
pub(in crate::ops) const LOOP: usize = 1 << 15;

/// Sums along an axis, whose length becomes one.
pub(in crate::ops) fn sum_axis<B: Backend>(tensor: FloatTensor<B>, axis: usize) -> FloatTensor<B> {
    let shape = tensor.shape();
    if shape[axis] <= LOOP {
        return B::float_sum_dim(tensor, axis);
    }
    let parts = (0..shape[axis]).step_by(LOOP).map(|start| {
        let mut slices = vec![Slice::full(); shape.num_dims()];
        slices[axis] = Slice::from(start..shape[axis].min(start + LOOP));
        B::float_sum_dim(B::float_slice(tensor.clone(), &slices), axis)
    });
    sum_axis::<B>(B::float_cat(parts.collect(), axis), axis)
}

/// Means along an axis, whose length becomes one.
pub(in crate::ops) fn mean_axis<B: Backend>(tensor: FloatTensor<B>, axis: usize) -> FloatTensor<B> {
    match tensor.shape()[axis] {
        length if length <= LOOP => B::float_mean_dim(tensor, axis),
        length => B::float_div_scalar(sum_axis::<B>(tensor, axis), (length as f64).into()),
    }
}

/// Sums over all axes except one, or over all axes: `[parameters]`.
pub(in crate::ops) fn sum_over_examples<B: Backend>(
    tensor: FloatTensor<B>,
    axis: Option<usize>,
) -> FloatTensor<B> {
    let [batch_size, outer, parameters, inner] = four_axes(&tensor.shape(), axis);
    let rows = Shape::new([batch_size * outer, parameters, inner]);
    let mut sum = B::float_reshape(tensor, rows);
    if inner > 1 {
        sum = sum_axis::<B>(sum, 2);
    }
    B::float_reshape(sum_axis::<B>(sum, 0), Shape::new([parameters]))
}

/// Returns `[batch_size, outer, parameters, inner]`: the axes before and after the axis of the
/// parameters are merged.
pub(in crate::ops) fn four_axes(shape: &Shape, axis: Option<usize>) -> [usize; 4] {
    let product = |from: usize, to: usize| shape.iter().take(to).skip(from).product::<usize>();
    let rank = shape.num_dims();
    match axis {
        Some(axis) => [shape[0], product(1, axis), shape[axis], product(axis + 1, rank)],
        None => [shape[0], 1, 1, product(1, rank)],
    }
}
