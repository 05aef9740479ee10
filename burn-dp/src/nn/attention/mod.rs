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

/// Masks the scores of padding. `mask` is `[batch_size, positions]`.
fn mask_padding(scores: Tensor<4>, mask: Option<Tensor<2, Bool>>, min_float: f64) -> Tensor<4> {
    match mask {
        Some(mask) => {
            let [batch_size, positions] = mask.dims();
            scores.mask_fill(mask.reshape([batch_size, 1, 1, positions]), min_float)
        }
        None => scores,
    }
}

/// Returns the attention weights over the last axis.
fn normalize(scores: Tensor<4>, quiet: bool) -> Tensor<4> {
    match quiet {
        true => quiet_softmax(scores, 3),
        false if has_native_kernels(&scores.device()) => ops::row_softmax(scores),
        false => softmax(scores, 3),
    }
}
