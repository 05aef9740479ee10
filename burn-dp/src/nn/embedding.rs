use burn::nn::Embedding;
use burn::tensor::{Int, Tensor, assert_shape};

use super::weight::{look_up, transposed_product};
use super::{Private, low_rank};

impl Private<Embedding> {
    /// Looks up the rows of the weight, with its LoRA adapter if it has one.
    ///
    /// The row of an id that is negative, or not below the number of rows, is NaN, on every
    /// backend. The private backward pass then returns an error with the id.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, sequence_length]`
    /// - output: `[batch_size, sequence_length, d_model]`
    pub fn forward(&self, input: Tensor<2, Int>) -> Tensor<3> {
        embedding(&self.inner, input)
    }

    /// Returns the scores of all tokens: the product with the transposed weight, for models whose
    /// output layer is tied to the embedding.
    ///
    /// Both uses belong to one parameter: their gradients are added before the norm is taken.
    /// Burn's optimizers update one copy of a parameter, so only this layer holds the tied weight.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …, d_model]`
    /// - output: `[batch_size, …, n_embedding]`
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` is not `d_model`, or if `input` has no batch axis.
    ///
    /// # References
    ///
    /// Press and Wolf, Using the output embedding to improve language models, 2017.
    pub fn attend<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        attend(&self.inner, input)
    }
}

/// Implements [`Private<Embedding>::forward`](Private).
pub(crate) fn embedding(layer: &Embedding, input: Tensor<2, Int>) -> Tensor<3> {
    match layer.weight.adapter() {
        None => look_up(&layer.weight, input),
        Some(adapter) => {
            let weight = low_rank::dense(&layer.weight, adapter.b.dtype());
            look_up(&weight, input.clone()) + low_rank::embedding(adapter, input)
        }
    }
}

/// Implements [`Private<Embedding>::attend`](Private).
pub(crate) fn attend<const D: usize>(layer: &Embedding, input: Tensor<D>) -> Tensor<D> {
    assert!(D >= 2, "the input of a tied output layer needs a batch axis, got rank {D}");
    let [_, d_model] = layer.weight.dims();
    assert_shape!(input, [.., d_model]);
    match layer.weight.adapter() {
        None => transposed_product(&layer.weight, input),
        Some(adapter) => {
            let weight = low_rank::dense(&layer.weight, input.dtype());
            transposed_product(&weight, input.clone()) + low_rank::attend(adapter, input)
        }
    }
}
