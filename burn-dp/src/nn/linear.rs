use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Tensor, assert_shape, module};

use super::{Private, low_rank};
use crate::ops::{self, Primitive};

impl Private<Linear> {
    /// Applies the linear layer, with its LoRA adapter if it has one.
    ///
    /// After [`Module::apply_lora`](burn::module::Module::apply_lora) or
    /// [`apply_qlora`](burn::module::Module::apply_qlora) the stored weight is frozen, and packed
    /// for QLoRA; the factors `weight.lora.a` and `weight.lora.b` are trained and have per-example
    /// rules.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_input]`
    /// - output: `[batch_size, …, d_output]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_input`, or if `input` has no batch axis: an
    /// example needs an axis of its own, also in a batch of one.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        linear(&self.inner, input)
    }
}

/// See [`Private<Linear>::forward`](Private).
pub(crate) fn linear<const D: usize>(layer: &Linear, input: Tensor<D>) -> Tensor<D> {
    assert!(D >= 2, "the input of a private linear layer needs a batch axis, got rank {D}");
    let [d_input, _] = layer.weight.dims();
    assert_shape!(input, [.., d_input]);
    match layer.weight.adapter() {
        None => apply(&layer.weight, layer.bias.as_ref(), input),
        Some(adapter) => {
            let weight = low_rank::dense(&layer.weight, input.dtype());
            let bias = layer.bias.as_ref().map(|bias| low_rank::dense(bias, input.dtype()));
            apply(&weight, bias.as_ref(), input.clone()) + low_rank::forward(adapter, input)
        }
    }
}

/// `input @ weight + bias`, the parameters as they are stored.
pub(super) fn apply<const D: usize>(
    weight: &Param<Tensor<2>>,
    bias: Option<&Param<Tensor<1>>>,
    input: Tensor<D>,
) -> Tensor<D> {
    if let Some(output) = without_rows(&input, weight.dims()[1]) {
        return output;
    }
    let kept = input.clone();
    ops::apply(
        weight,
        bias,
        Primitive::Linear,
        || ops::keep(kept),
        |weight, bias| module::linear(input, weight, bias),
    )
}

/// The output for an input without rows: a batch without examples, or examples without positions.
///
/// Decided here, because a matrix product without rows is outside of what every backend can do.
pub(super) fn without_rows<const D: usize>(
    input: &Tensor<D>,
    d_output: usize,
) -> Option<Tensor<D>> {
    let mut shape = input.dims();
    shape[D - 1] = d_output;
    let rows: usize = shape[..D - 1].iter().product();
    (rows == 0).then(|| Tensor::zeros(shape, (&input.device(), input.dtype())))
}
