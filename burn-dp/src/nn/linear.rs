use burn::nn::Linear;
use burn::tensor::{Tensor, assert_shape};

use super::weight::{is_packed, matrix_product, packed_product};
use super::{Private, low_rank};

impl Private<Linear> {
    /// Applies the linear layer, with its LoRA adapter if it has one.
    ///
    /// [`LowRankAdapters`](crate::model::LowRankAdapters),
    /// [`Module::apply_lora`](burn::module::Module::apply_lora) and
    /// [`apply_qlora`](burn::module::Module::apply_qlora) freeze the stored weight. The factors
    /// `weight.lora.a` and `weight.lora.b` are trained and have per-example rules. A weight that is
    /// packed (QLoRA) is unpacked in the forward and again in the backward pass, and stays packed
    /// in between.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_input]`
    /// - output: `[batch_size, …, d_output]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_input`, or if `input` has no batch axis. A
    /// batch of one example also needs the axis.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        linear(&self.inner, input)
    }
}

/// Implements [`Private<Linear>::forward`](Private).
pub(crate) fn linear<const D: usize>(layer: &Linear, input: Tensor<D>) -> Tensor<D> {
    assert!(D >= 2, "the input of a private linear layer needs a batch axis, got rank {D}");
    let [d_input, _] = layer.weight.dims();
    assert_shape!(input, [.., d_input]);
    let adapter = layer.weight.adapter();
    if adapter.is_none() && !is_packed(&layer.weight) {
        return matrix_product(&layer.weight, layer.bias.as_ref(), input);
    }
    let bias = layer.bias.as_ref().map(|bias| low_rank::dense(bias, input.dtype()));
    let output = match is_packed(&layer.weight) {
        true => packed_product(&layer.weight, bias.as_ref(), input.clone()),
        false => {
            let weight = low_rank::dense(&layer.weight, input.dtype());
            matrix_product(&weight, bias.as_ref(), input.clone())
        }
    };
    match adapter {
        Some(adapter) => output + low_rank::linear(adapter, input),
        None => output,
    }
}
