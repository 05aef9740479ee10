//! Low-rank adapters (LoRA) on a private linear layer.

use burn::module::{LoraAdapter, Param};
use burn::tensor::{DType, Tensor};

use crate::ops::{self, LayerIds};

/// What an adapter adds to the output of a linear layer: `scale · (input @ a) @ b`.
///
/// The factors are two linear layers in a row, each with its own rule, so the gradient of `base +
/// scale · a @ b` with respect to the weight, which is as large as the weight for every example, is never
/// formed.
///
/// # References
///
/// Hu et al., LoRA: low-rank adaptation of large language models, 2021, section 4.1; Yu et al.,
/// Differentially private fine-tuning of language models, 2022, section 3 (the per-example gradients of
/// the factors).
pub(super) fn forward<const D: usize>(adapter: &LoraAdapter, input: Tensor<D>) -> Tensor<D> {
    let factor = |input, factor: &Param<Tensor<2>>| {
        let ids = LayerIds { weight: factor.id, bias: None };
        ops::linear(input, factor.val(), None, ids)
    };
    let hidden = factor(input, &adapter.a);
    factor(hidden, &adapter.b).mul_scalar(adapter.scale)
}

/// A stored value as numbers of the precision of `like`: what QLoRA keeps packed is unpacked, as
/// `Param::val` does it.
pub(super) fn dense<const D: usize>(stored: Tensor<D>, like: DType) -> Tensor<D> {
    let dense = match stored.dtype() {
        DType::QFloat(_) => stored.dequantize(),
        _ => stored,
    };
    if dense.dtype() == like { dense } else { dense.cast(like) }
}
