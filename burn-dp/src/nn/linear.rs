use burn::nn::Linear;
use burn::tensor::{Tensor, assert_shape};

use super::{Private, low_rank};
use crate::ops::{self, LayerIds};

impl Private<Linear> {
    /// Applies the linear layer, with its LoRA adapter if it has one.
    ///
    /// After [`Module::apply_lora`](burn::module::Module::apply_lora) or
    /// [`apply_qlora`](burn::module::Module::apply_qlora) the stored weight is frozen, and packed for
    /// QLoRA; the factors `weight.lora.a` and `weight.lora.b` are trained and have per-example rules.
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
        assert!(D >= 2, "the input of a private linear layer needs a batch axis, got rank {D}");
        let layer = &self.inner;
        let [d_input, _] = layer.weight.dims();
        assert_shape!(input, [.., d_input]);

        let ids =
            LayerIds { weight: layer.weight.id, bias: layer.bias.as_ref().map(|bias| bias.id) };
        match layer.weight.adapter() {
            None => {
                let bias = layer.bias.as_ref().map(|bias| bias.val());
                ops::linear(input, layer.weight.val(), bias, ids)
            }
            Some(adapter) => {
                let precision = input.dtype();
                let weight = low_rank::dense(layer.weight.base(), precision);
                let bias = layer.bias.as_ref().map(|bias| low_rank::dense(bias.base(), precision));
                ops::linear(input.clone(), weight, bias, ids) + low_rank::forward(adapter, input)
            }
        }
    }
}
