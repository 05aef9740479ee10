use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;

/// Sums over all axes except one, or over all axes: `[parameters]`.
pub(in crate::ops) fn sum_over_examples<B: Backend>(
    tensor: FloatTensor<B>,
    axis: Option<usize>,
) -> FloatTensor<B> {
    let [batch_size, outer, parameters, inner] = four_axes(&tensor.shape(), axis);
    let rows = Shape::new([batch_size * outer, parameters, inner]);
    let mut sum = B::float_reshape(tensor, rows);
    if inner > 1 {
        sum = B::float_sum_dim(sum, 2);
    }
    B::float_reshape(B::float_sum_dim(sum, 0), Shape::new([parameters]))
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
