use burn::nn::Embedding;
use burn::tensor::{Int, Tensor, assert_shape, module};

use super::{Private, matrix_product::without_rows};
use crate::ops::{self, Primitive};

impl Private<Embedding> {
    /// Looks up the rows of the weight.
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
    /// output layer is tied to their embedding.
    ///
    /// Both uses belong to one parameter: their gradients are added before the norm is taken.
    /// Burn's optimizers update one copy of a parameter, so this layer holds the tied weight alone.
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
    let kept = input.clone();
    let (ids, outside) = ops::bounded(input, layer.weight.dims()[0]);
    ops::apply(
        &layer.weight,
        None,
        Primitive::Embedding,
        || ops::keep_ids(kept),
        |weight, _| {
            let output: Tensor<3> = module::embedding(weight, ids);
            match outside {
                Some(outside) => {
                    let outside = outside.unsqueeze_dim::<3>(2).expand(output.dims());
                    output.mask_fill(outside, f32::NAN)
                }
                None => output,
            }
        },
    )
}

/// Implements [`Private<Embedding>::attend`](Private).
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
