//! Low-rank adapters (LoRA) of private linear layers.

use burn::module::{LoraAdapter, Param};
use burn::tensor::{DType, Tensor};

use super::matrix_product::matrix_product;

/// Returns what an adapter adds to the output of a linear layer: `scale · (input @ a) @ b`.
///
/// The factors are two linear layers in sequence, each with its own rule. The gradient of the
/// effective weight, which is as large as the weight for every example, is never formed.
///
/// # References
///
/// Hu et al., LoRA: low-rank adaptation of large language models, 2021, section 4.1; Yu et al.,
/// Differentially private fine-tuning of language models, 2022, section 3 (the per-example
/// gradients of the factors).
pub(super) fn forward<const D: usize>(adapter: &LoraAdapter, input: Tensor<D>) -> Tensor<D> {
    let hidden = matrix_product(&adapter.a, None, input);
    matrix_product(&adapter.b, None, hidden).mul_scalar(adapter.scale)
}

/// Returns the stored value of a parameter in `precision`, without its adapter. Packed values of
/// QLoRA are unpacked like in `Param::val`.
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
