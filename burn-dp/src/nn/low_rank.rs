//! Low-rank adapters (LoRA) of private layers.
//!
//! A weight with an adapter is `base + scale · a @ b` in the shape of `base`, where `a` has one row
//! for each index of the first axis and `b` one column for each index of the other axes. A layer
//! computes with the base and the factors one after another, and each has its own rule. The
//! gradient of the effective weight, which is as large as the weight for every example, is never
//! instantiated.
//!
//! # References
//!
//! Hu et al., LoRA: low-rank adaptation of large language models, 2021, section 4.1; Yu et al.,
//! Differentially private fine-tuning of language models, 2022, section 3 (the per-example
//! gradients of the factors).

use burn::module::{LoraAdapter, Param};
use burn::tensor::{DType, Int, Tensor};

use super::weight::{convolved, look_up, matrix_product, transposed_product};
use crate::ops::Convolution;

/// The layers of Burn whose weight may have an adapter, by the names of their types.
pub(crate) const ADAPTED_LAYERS: [&str; 8] = [
    "Linear",
    "Embedding",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
];

/// Returns the contribution of an adapter to the output of a linear layer: `scale · (input @ a) @
/// b`.
pub(super) fn linear<const D: usize>(adapter: &LoraAdapter, input: Tensor<D>) -> Tensor<D> {
    let hidden = matrix_product(&adapter.a, None, input);
    matrix_product(&adapter.b, None, hidden).mul_scalar(adapter.scale)
}

/// Returns the contribution of an adapter to the rows of an embedding: `scale · a[ids] @ b`.
pub(super) fn embedding(adapter: &LoraAdapter, ids: Tensor<2, Int>) -> Tensor<3> {
    let hidden = look_up(&adapter.a, ids);
    matrix_product(&adapter.b, None, hidden).mul_scalar(adapter.scale)
}

/// Returns the contribution of an adapter to the output of a layer that is tied to an embedding:
/// `scale · (input @ bᵀ) @ aᵀ`.
pub(super) fn attend<const D: usize>(adapter: &LoraAdapter, input: Tensor<D>) -> Tensor<D> {
    let hidden = transposed_product(&adapter.b, input);
    transposed_product(&adapter.a, hidden).mul_scalar(adapter.scale)
}

/// Returns the contribution of an adapter to the output of a convolution whose kernel has the shape
/// `weight`.
///
/// The rows of `b` are the kernels of one convolution with `rank` channels, and `a` is a product
/// over channels: after it, or before a transposed one. Groups are computed one after another,
/// because they share `b`.
pub(super) fn convolution<const D: usize>(
    adapter: &LoraAdapter,
    weight: [usize; D],
    convolution: Convolution,
    input: Tensor<D>,
) -> Tensor<D> {
    let mut kernel = weight;
    kernel[0] = adapter.b.dims()[0];
    let (groups, transposed) = (convolution.groups(), convolution.is_transposed());
    let one = convolution.of_one_group();
    let slide = |input| convolved(&adapter.b, kernel, None, one.clone(), input);
    let output = |input| match transposed {
        true => slide(over_channels(input, |x| matrix_product(&adapter.a, None, x))),
        false => over_channels(slide(input), |x| transposed_product(&adapter.a, x)),
    };
    let output = match groups {
        1 => output(input),
        _ => {
            let group = |group: usize| match transposed {
                true => output(only_group(&input, group, groups)),
                false => group_of(&output(group_of(&input, group, groups)), group, groups),
            };
            Tensor::cat((0..groups).map(group).collect(), 1)
        }
    };
    output.mul_scalar(adapter.scale)
}

/// Applies a product over the channels, `[batch_size, channels, …]`, at each position.
fn over_channels<const D: usize>(
    input: Tensor<D>,
    product: impl FnOnce(Tensor<3>) -> Tensor<3>,
) -> Tensor<D> {
    let mut shape = input.dims();
    let positions = shape[2..].iter().product();
    let by_position = input.reshape([shape[0], shape[1], positions]).swap_dims(1, 2);
    let output = product(by_position).swap_dims(1, 2);
    shape[1] = output.dims()[1];
    output.reshape(shape)
}

/// Returns the channels of one group.
fn group_of<const D: usize>(tensor: &Tensor<D>, group: usize, groups: usize) -> Tensor<D> {
    let size = tensor.dims()[1] / groups;
    tensor.clone().narrow(1, group * size, size)
}

/// Returns the tensor with zeros in the channels of all other groups.
fn only_group<const D: usize>(tensor: &Tensor<D>, group: usize, groups: usize) -> Tensor<D> {
    let one = group_of(tensor, group, groups);
    let zeros = |groups: usize| {
        let mut shape = one.dims();
        shape[1] *= groups;
        Tensor::zeros(shape, (&one.device(), one.dtype()))
    };
    let parts = [(group > 0).then(|| zeros(group)), Some(one.clone())];
    let after = groups - group - 1;
    let parts = parts.into_iter().chain([(after > 0).then(|| zeros(after))]).flatten();
    Tensor::cat(parts.collect(), 1)
}

/// Returns the stored value of a parameter in `precision`, without its adapter. Packed values of
/// QLoRA are unpacked as in `Param::val`.
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
