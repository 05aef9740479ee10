//! Scaled dot-product attention of projected sequences.

use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Tensor};

/// A score that has no weight after the softmax, even in half precision.
const MASKED: f32 = -1e4;

/// Returns the weighted values.
///
/// # Shapes
///
/// - query, key, value, output: `[batch_size, positions, heads · size]`
/// - mask: broadcast to `[batch_size, heads, positions, positions]`; `true` masks
pub(crate) fn attend(
    [query, key, value]: [Tensor<3>; 3],
    heads: usize,
    mask: Option<Tensor<4, Bool>>,
) -> Tensor<3> {
    let [batch_size, positions, width] = query.dims();
    let size = width / heads;
    let split =
        |input: Tensor<3>| input.reshape([batch_size, positions, heads, size]).swap_dims(1, 2);
    let scores = split(query).matmul(split(key).transpose()).div_scalar((size as f32).sqrt());
    let scores = match mask {
        Some(mask) => scores.mask_fill(mask, MASKED),
        None => scores,
    };
    let context = softmax(scores, 3).matmul(split(value));
    context.swap_dims(1, 2).reshape([batch_size, positions, width])
}
