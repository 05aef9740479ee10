use burn::nn::Embedding;
use burn::tensor::{Int, Tensor, assert_shape, module};

use super::{Private, linear::without_rows};
use crate::ops::{self, Primitive};

impl Private<Embedding> {
    /// Looks up the rows of the weight.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, sequence_length]`
    /// - output: `[batch_size, sequence_length, d_model]`
    pub fn forward(&self, input: Tensor<2, Int>) -> Tensor<3> {
        embedding(&self.inner, input)
    }

    /// The scores of all tokens: the product with the transposed weight, for models whose output
    /// layer is tied to their embedding.
    ///
    /// Both uses count as one parameter: their gradients are added before the norm. Burn's
    /// optimizers update one copy of a parameter, so a tied weight has to live in one layer, this
    /// one.
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

/// See [`Private<Embedding>::forward`](Private).
pub(crate) fn embedding(layer: &Embedding, input: Tensor<2, Int>) -> Tensor<3> {
    let kept = input.clone();
    ops::apply(
        &layer.weight,
        None,
        Primitive::Embedding,
        || ops::keep_ids(kept),
        |weight, _| module::embedding(weight, input),
    )
}

/// See [`Private<Embedding>::attend`](Private).
pub(crate) fn attend<const D: usize>(layer: &Embedding, input: Tensor<D>) -> Tensor<D> {
    assert!(D >= 2, "the input of a tied output layer needs a batch axis, got rank {D}");
    let [n_embedding, d_model] = layer.weight.dims();
    assert_shape!(input, [.., d_model]);
    if let Some(output) = without_rows(&input, n_embedding) {
        return output;
    }
    let kept = input.clone();
    ops::apply(
        &layer.weight,
        None,
        Primitive::TransposedLinear,
        || ops::keep(kept),
        |weight, _| module::linear(input, weight.transpose(), None),
    )
}
