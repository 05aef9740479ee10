//! Low-rank adapters (LoRA) on a private linear layer.

use burn::module::{LoraAdapter, Param};
use burn::tensor::{DType, Tensor};

use super::linear;

/// What an adapter adds to the output of a linear layer: `scale · (input @ a) @ b`.
///
/// The factors are two linear layers in a row, each with its own rule, so the gradient of `base +
/// scale · a @ b` with respect to the weight, which is as large as the weight for every example, is
/// never formed.
///
/// # References
///
/// Hu et al., LoRA: low-rank adaptation of large language models, 2021, section 4.1; Yu et al.,
/// Differentially private fine-tuning of language models, 2022, section 3 (the per-example
/// gradients of the factors).
pub(super) fn forward<const D: usize>(adapter: &LoraAdapter, input: Tensor<D>) -> Tensor<D> {
    let hidden = linear::apply(&adapter.a, None, input);
    linear::apply(&adapter.b, None, hidden).mul_scalar(adapter.scale)
}

/// The stored value of a parameter as numbers of that precision, without its adapter: what QLoRA
/// keeps packed is unpacked, as `Param::val` does it.
pub(super) fn dense<const D: usize>(
    stored: &Param<Tensor<D>>,
    precision: DType,
) -> Param<Tensor<D>> {
    let value = stored.base();
    let value = match value.dtype() {
        DType::QFloat(_) => value.dequantize(),
        _ => value,
    };
    let value = if value.dtype() == precision { value } else { value.cast(precision) };
    Param::initialized(stored.id, value)
}
