//! Attention layers.
//!
//! Only their projections, which are linear layers, have parameters. The operations between them
//! are Burn's, except for the softmax on Flex. Burn's fused attention is not used: it has no
//! dropout, returns no weights, and under autodiff it computes the same operations separately.

mod cache;
mod cross_attention;
mod input;
mod multi_head;

pub use cache::{CrossAttentionCache, MhaCache};
pub(super) use cache::{PositionCache, extend};
pub use cross_attention::PrivateCrossAttention;
pub use input::MhaInput;
pub(super) use multi_head::multi_head;

use burn::tensor::activation::{quiet_softmax, softmax};
use burn::tensor::{Bool, Tensor};

use super::backend::has_native_kernels;
use crate::ops;

/// Moves the heads to a separate axis.
///
/// # Shapes
///
/// - input: `[batch_size, positions, heads · d_head]`
/// - output: `[batch_size, heads, positions, d_head]`
fn split_heads(input: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch_size, positions, features] = input.dims();
    input.reshape([batch_size, positions, heads, features / heads]).swap_dims(1, 2)
}

/// Inverts [`split_heads`].
fn join_heads(input: Tensor<4>) -> Tensor<3> {
    let [batch_size, heads, positions, size] = input.dims();
    input.swap_dims(1, 2).reshape([batch_size, positions, heads * size])
}

/// The largest `min_float` that masks a position; Burn's default. A larger one only lowers the
/// weight of a position.
const MASKS: f64 = -1e4;

/// Masks scores of `[batch_size, heads, positions_1, positions_2]` where `mask`, which is broadcast
/// over the heads, is `true`.
///
/// With `min_float`, a row whose other scores are smaller would have its weight on masked
/// positions, whose number follows from the longest example of the batch. Only a row with no other
/// position has `min_float`: equal weights, as in Burn.
fn mask_scores(scores: Tensor<4>, mask: Tensor<4, Bool>, min_float: f64) -> Tensor<4> {
    let masked = scores.mask_fill(mask.clone(), min_float);
    if min_float > MASKS || masked.shape().num_elements() == 0 {
        return masked;
    }
    let has_others = mask.clone().all_dim(3).bool_not().expand(mask.dims());
    masked.mask_fill(mask.bool_and(has_others), f32::NEG_INFINITY)
}

/// Returns the mask of padding for [`mask_scores`]. `mask` is `[batch_size, positions]`.
fn padding(mask: Tensor<2, Bool>) -> Tensor<4, Bool> {
    let [batch_size, positions] = mask.dims();
    mask.reshape([batch_size, 1, 1, positions])
}

/// Returns the attention weights over the last axis.
fn normalize(scores: Tensor<4>, quiet: bool) -> Tensor<4> {
    match quiet {
        true => quiet_softmax(scores, 3),
        false if has_native_kernels(&scores.device()) => ops::row_softmax(scores),
        false => softmax(scores, 3),
    }
}
