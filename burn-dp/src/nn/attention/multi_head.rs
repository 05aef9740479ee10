use burn::nn::attention::{MhaOutput, MultiHeadAttention};
use burn::tensor::{Tensor, assert_shape};

use super::super::linear::linear;
use super::super::private::{Private, PrivateLayer, sealed::Sealed};
use super::{MhaCache, MhaInput, join_heads, mask_padding, normalise, split_heads};

impl Sealed for MultiHeadAttention {}
impl PrivateLayer for MultiHeadAttention {}

impl Private<MultiHeadAttention> {
    /// Applies the layer.
    ///
    /// # Shapes
    ///
    /// As [`MhaInput`]; the context is `[batch_size, positions_1, d_model]` and the weights are
    /// `[batch_size, heads, positions_1, positions_2]`.
    ///
    /// # Privacy
    ///
    /// The masks of an example may depend on that example only.
    ///
    /// # Panics
    ///
    /// Panics if the last axis is not `d_model`, or if batch sizes or the lengths of key and value
    /// differ.
    pub fn forward(&self, input: MhaInput) -> MhaOutput {
        multi_head(&self.inner, input)
    }

    /// Applies the layer to the last position of the input and takes the others from `cache`.
    ///
    /// # Shapes
    ///
    /// As [`forward`](Self::forward).
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_cache(&self, input: MhaInput, cache: &mut MhaCache) -> MhaOutput {
        multi_head_cached(&self.inner, input, cache)
    }
}

/// The forward pass of a layer that may be a part of another one.
pub(in crate::nn) fn multi_head(layer: &MultiHeadAttention, input: MhaInput) -> MhaOutput {
    check(layer, &input);
    let MhaInput { query, key, value, mask_pad, mask_attn } = input;
    let project = |input, part| split_heads(linear(part, input), layer.n_heads);
    let heads = Heads {
        query: project(query, &layer.query),
        key: project(key, &layer.key),
        value: project(value, &layer.value),
    };
    let (weights, context) = heads.attend(layer, mask_pad, mask_attn);
    MhaOutput { weights, context: linear(&layer.output, context) }
}

pub(in crate::nn) fn multi_head_cached(
    layer: &MultiHeadAttention,
    input: MhaInput,
    cache: &mut MhaCache,
) -> MhaOutput {
    check(layer, &input);
    let MhaInput { query, key, value, mask_pad, mask_attn } = input;
    let project = |input, part| split_heads(linear(part, input), layer.n_heads);
    let of_query = |input| project(input, &layer.query);
    let of_key = |input| project(input, &layer.key);
    let of_value = |input| project(input, &layer.value);
    let query = cache.query.extend(query, 2, of_query);
    let (key, value) = match cache.cross {
        true => (cache.key.once(key, of_key), cache.value.once(value, of_value)),
        false => (cache.key.extend(key, 2, of_key), cache.value.extend(value, 2, of_value)),
    };
    let (weights, context) = Heads { query, key, value }.attend(layer, mask_pad, mask_attn);
    let context = cache.output.extend(context, 1, |input| linear(&layer.output, input));
    MhaOutput { weights, context }
}

fn check(layer: &MultiHeadAttention, input: &MhaInput) {
    let [batch_size, ..] = input.query.dims();
    let [_, positions, _] = input.key.dims();
    assert_shape!(input.query, [_, _, layer.d_model]);
    assert_shape!(input.key, [batch_size, _, layer.d_model]);
    assert_shape!(input.value, [batch_size, positions, layer.d_model]);
}

/// `[batch_size, heads, positions, d_k]` each.
struct Heads {
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
}

impl Heads {
    /// Weights, and the values under them with their heads joined.
    fn attend(
        self,
        layer: &MultiHeadAttention,
        mask_pad: Option<Tensor<2, burn::tensor::Bool>>,
        mask_attn: Option<Tensor<3, burn::tensor::Bool>>,
    ) -> (Tensor<4>, Tensor<3>) {
        let scores = self.query.matmul(self.key.transpose());
        let scores = scores.div_scalar((layer.d_k as f32).sqrt());
        let scores = mask_padding(scores, mask_pad, layer.min_float);
        let scores = match mask_attn {
            Some(mask) => scores.mask_fill(mask.unsqueeze_dim::<4>(1), layer.min_float),
            None => scores,
        };
        let weights = layer.dropout.forward(normalise(scores, layer.quiet_softmax));
        let context = join_heads(weights.clone().matmul(self.value));
        (weights, context)
    }
}
