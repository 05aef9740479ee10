use burn::nn::attention::{MhaOutput, MultiHeadAttention};
use burn::tensor::{Bool, Tensor, assert_shape};

use super::super::dropout::dropout;
use super::super::linear::linear;
use super::super::private::Private;
use super::{MhaCache, MhaInput, join_heads, mask_scores, normalize, padding, split_heads};

impl Private<MultiHeadAttention> {
    /// Applies the layer.
    ///
    /// # Shapes
    ///
    /// - input: see [`MhaInput`]
    /// - context: `[batch_size, positions_1, d_model]`
    /// - weights: `[batch_size, heads, positions_1, positions_2]`
    ///
    /// # Privacy
    ///
    /// The masks of an example must depend on that example alone. A masked position has no weight,
    /// so the length of the padding has no effect, unless `min_float` is above Burn's default of
    /// -1e4, or all positions are masked: both as in Burn. Mask the loss of an example without a
    /// position.
    ///
    /// # Panics
    ///
    /// Panics if the last axis is not `d_model`, or if batch sizes or the lengths of key and value
    /// differ.
    pub fn forward(&self, input: MhaInput) -> MhaOutput {
        multi_head(&self.inner, input, None)
    }

    /// Applies the layer to the last position of the input and takes the other positions from
    /// `cache`.
    ///
    /// Shapes and panics: see [`forward`](Self::forward).
    pub fn forward_cache(&self, input: MhaInput, cache: &mut MhaCache) -> MhaOutput {
        multi_head(&self.inner, input, Some(cache))
    }
}

/// Computes the forward pass of the layer on its own or as part of another layer, on all positions
/// or with a cache.
pub(in crate::nn) fn multi_head(
    layer: &MultiHeadAttention,
    input: MhaInput,
    cache: Option<&mut MhaCache>,
) -> MhaOutput {
    check(layer, &input);
    let MhaInput { query, key, value, mask_pad, mask_attn } = input;
    let of = |part| move |input| split_heads(linear(part, input), layer.n_heads);
    let (of_query, of_key, of_value) = (of(&layer.query), of(&layer.key), of(&layer.value));
    let of_output = |input| linear(&layer.output, input);

    let Some(cache) = cache else {
        let heads = Heads { query: of_query(query), key: of_key(key), value: of_value(value) };
        let (weights, context) = heads.attend(layer, mask_pad, mask_attn);
        return MhaOutput { weights, context: of_output(context) };
    };
    let query = cache.query.extend(query, 2, of_query);
    let (key, value) = match cache.cross {
        true => (cache.key.once(key, of_key), cache.value.once(value, of_value)),
        false => (cache.key.extend(key, 2, of_key), cache.value.extend(value, 2, of_value)),
    };
    let (weights, context) = Heads { query, key, value }.attend(layer, mask_pad, mask_attn);
    MhaOutput { weights, context: cache.output.extend(context, 1, of_output) }
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
    /// Returns the attention weights, and the weighted values with their heads joined.
    fn attend(
        self,
        layer: &MultiHeadAttention,
        mask_pad: Option<Tensor<2, Bool>>,
        mask_attn: Option<Tensor<3, Bool>>,
    ) -> (Tensor<4>, Tensor<3>) {
        let scores = self.query.matmul(self.key.transpose());
        let scores = scores.div_scalar((layer.d_k as f32).sqrt());
        let mask = match (mask_pad.map(padding), mask_attn.map(|mask| mask.unsqueeze_dim(1))) {
            (Some(pad), Some(attn)) if scores.shape().num_elements() > 0 => {
                let [batch_size, _, rows, columns] = scores.dims();
                let shape = [batch_size, 1, rows, columns];
                Some(pad.expand(shape).bool_or(attn.expand(shape)))
            }
            (pad, attn) => pad.or(attn),
        };
        let scores = match mask {
            Some(mask) => mask_scores(scores, mask, layer.min_float),
            None => scores,
        };
        let weights = dropout(&layer.dropout, normalize(scores, layer.quiet_softmax));
        let context = join_heads(weights.clone().matmul(self.value));
        (weights, context)
    }
}
