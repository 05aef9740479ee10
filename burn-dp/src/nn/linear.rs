use burn::nn::Linear;
use burn::tensor::{Tensor, assert_shape};

use super::matrix_product::matrix_product;
use super::{Private, low_rank};

impl Private<Linear> {
    /// Applies the linear layer, with its LoRA adapter if it has one.
    ///
    /// [`Module::apply_lora`](burn::module::Module::apply_lora) and
    /// [`apply_qlora`](burn::module::Module::apply_qlora) freeze the stored weight, and QLoRA packs
    /// it. The factors `weight.lora.a` and `weight.lora.b` are trained and have per-example rules.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_input]`
    /// - output: `[batch_size, …, d_output]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_input`, or if `input` has no batch axis. A
    /// batch of one example needs the axis, too.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        linear(&self.inner, input)
    }
}

/// Implements [`Private<Linear>::forward`](Private).
pub(crate) fn linear<const D: usize>(layer: &Linear, input: Tensor<D>) -> Tensor<D> {
    assert!(D >= 2, "the input of a private linear layer needs a batch axis, got rank {D}");
    let [d_input, _] = layer.weight.dims();
    assert_shape!(input, [.., d_input]);
    match layer.weight.adapter() {
        None => matrix_product(&layer.weight, layer.bias.as_ref(), input),
        Some(adapter) => {
            let weight = low_rank::dense(&layer.weight, input.dtype());
            let bias = layer.bias.as_ref().map(|bias| low_rank::dense(bias, input.dtype()));
            matrix_product(&weight, bias.as_ref(), input.clone())
                + low_rank::forward(adapter, input)
        }
    }
}
