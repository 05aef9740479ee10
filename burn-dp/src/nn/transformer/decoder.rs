use burn::nn::transformer::{TransformerDecoder, TransformerDecoderLayer};
use burn::tensor::{Bool, Tensor};

use super::super::attention::{MhaCache, MhaInput, PositionCache, extend, multi_head};
use super::super::dropout::dropout;
use super::super::layer_norm::layer_norm;
use super::super::private::Private;
use super::feed_forward::feed_forward;

/// Input of a private [`TransformerDecoder`], built like Burn's input, whose fields are private.
#[derive(Clone, Debug)]
pub struct TransformerDecoderInput {
    target: Tensor<3>,
    target_mask_pad: Option<Tensor<2, Bool>>,
    target_mask_attn: Option<Tensor<3, Bool>>,
    memory: Tensor<3>,
    memory_mask_pad: Option<Tensor<2, Bool>>,
    memory_mask_attn: Option<Tensor<3, Bool>>,
}

impl TransformerDecoderInput {
    /// Creates an input without masks.
    ///
    /// # Shapes
    ///
    /// - target: `[batch_size, positions_1, d_model]`
    /// - memory: `[batch_size, positions_2, d_model]`
    pub fn new(target: Tensor<3>, memory: Tensor<3>) -> Self {
        Self {
            target,
            target_mask_pad: None,
            target_mask_attn: None,
            memory,
            memory_mask_pad: None,
            memory_mask_attn: None,
        }
    }

    /// Masks the positions of the memory that are `true`: `[batch_size, positions_2]`.
    pub fn memory_mask_pad(mut self, mask: Tensor<2, Bool>) -> Self {
        self.memory_mask_pad = Some(mask);
        self
    }

    /// Masks the pairs that are `true`: `[batch_size, positions_1, positions_2]`.
    pub fn memory_mask_attn(mut self, mask: Tensor<3, Bool>) -> Self {
        self.memory_mask_attn = Some(mask);
        self
    }

    /// Masks the positions of the target that are `true`: `[batch_size, positions_1]`.
    pub fn target_mask_pad(mut self, mask: Tensor<2, Bool>) -> Self {
        self.target_mask_pad = Some(mask);
        self
    }

    /// Masks the pairs that are `true`: `[batch_size, positions_1, positions_1]`.
    pub fn target_mask_attn(mut self, mask: Tensor<3, Bool>) -> Self {
        self.target_mask_attn = Some(mask);
        self
    }
}

impl Private<TransformerDecoder> {
    /// Applies the decoder.
    ///
    /// # Shapes
    ///
    /// - input: see [`TransformerDecoderInput`]
    /// - output: `[batch_size, positions_1, d_model]`
    ///
    /// # Panics
    ///
    /// Panics if the last axes are not `d_model`, or if batch sizes or lengths do not match.
    pub fn forward(&self, input: TransformerDecoderInput) -> Tensor<3> {
        let decoded =
            self.inner.layers.iter().fold(input, |input, layer| decode(layer, input, None));
        decoded.target
    }

    /// Applies the decoder to the last position of the target and takes the other positions from
    /// `cache`.
    ///
    /// # Shapes
    ///
    /// See [`forward`](Self::forward).
    ///
    /// # Panics
    ///
    /// Panics like [`forward`](Self::forward), or if the cache belongs to another decoder.
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerDecoderInput,
        cache: &mut TransformerDecoderAutoregressiveCache,
    ) -> Tensor<3> {
        let layers = &self.inner.layers;
        assert_eq!(cache.layers.len(), layers.len(), "the cache belongs to another decoder");
        let decoded = layers
            .iter()
            .zip(&mut cache.layers)
            .fold(input, |input, (layer, cache)| decode(layer, input, Some(cache)));
        decoded.target
    }

    /// Creates an empty cache for this decoder.
    pub fn new_autoregressive_cache(&self) -> TransformerDecoderAutoregressiveCache {
        let empty = |_: &_| TransformerDecoderLayerAutoregressiveCache::empty();
        let layers = self.inner.layers.iter().map(empty).collect();
        TransformerDecoderAutoregressiveCache { layers }
    }
}

impl Private<TransformerDecoderLayer> {
    /// Applies one layer and returns the input with the decoded target.
    ///
    /// # Shapes
    ///
    /// See [`TransformerDecoderInput`].
    ///
    /// # Panics
    ///
    /// Panics if the last axes are not `d_model`, or if batch sizes or lengths do not match.
    pub fn forward(&self, input: TransformerDecoderInput) -> TransformerDecoderInput {
        decode(&self.inner, input, None)
    }

    /// Applies one layer to the last position of the target and takes the other positions from
    /// `cache`.
    ///
    /// Shapes and panics: see [`forward`](Self::forward).
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerDecoderInput,
        cache: &mut TransformerDecoderLayerAutoregressiveCache,
    ) -> TransformerDecoderInput {
        decode(&self.inner, input, Some(cache))
    }
}

/// Applies one layer to all positions or, with a cache, to the new positions.
fn decode(
    layer: &TransformerDecoderLayer,
    mut input: TransformerDecoderInput,
    cache: Option<&mut TransformerDecoderLayerAutoregressiveCache>,
) -> TransformerDecoderInput {
    let (cross, own, pwff, [norm_1, norm_2, norm_3]) = match cache {
        Some(cache) => {
            let [norm_1, norm_2, norm_3] = &mut cache.norms;
            let norms = [Some(norm_1), Some(norm_2), Some(norm_3)];
            (Some(&mut cache.cross_attn), Some(&mut cache.self_attn), Some(&mut cache.pwff), norms)
        }
        None => (None, None, None, [None, None, None]),
    };
    let norm_1 = |x| extend(norm_1, x, |x| layer_norm(&layer.norm_1, x));
    let norm_2 = |x| extend(norm_2, x, |x| layer_norm(&layer.norm_2, x));
    let norm_3 = |x| extend(norm_3, x, |x| layer_norm(&layer.norm_3, x));
    let (pad, attn) = (input.target_mask_pad.clone(), input.target_mask_attn.clone());
    let self_attention = |x| {
        let input = MhaInput::self_attn(x).with_masks(pad, attn);
        dropout(&layer.dropout, multi_head(&layer.self_attn, input, own).context)
    };
    let (pad, attn) = (input.memory_mask_pad.clone(), input.memory_mask_attn.clone());
    let memory = input.memory.clone();
    let cross_attention = |x| {
        let input = MhaInput::new(x, memory.clone(), memory).with_masks(pad, attn);
        dropout(&layer.dropout, multi_head(&layer.cross_attn, input, cross).context)
    };
    let feed_forward =
        |x| dropout(&layer.dropout, extend(pwff, x, |x| feed_forward(&layer.pwff, x)));

    let x = input.target;
    input.target = if layer.norm_first {
        let x = x.clone() + self_attention(norm_3(x));
        let x = x.clone() + cross_attention(norm_1(x));
        x.clone() + feed_forward(norm_2(x))
    } else {
        let x = norm_1(x.clone() + self_attention(x));
        let x = norm_2(x.clone() + cross_attention(x));
        norm_3(x.clone() + feed_forward(x))
    };
    input
}

/// Cache of one private [`TransformerDecoderLayer`].
#[derive(Debug)]
pub struct TransformerDecoderLayerAutoregressiveCache {
    cross_attn: MhaCache,
    self_attn: MhaCache,
    pwff: PositionCache<3>,
    norms: [PositionCache<3>; 3],
}

impl TransformerDecoderLayerAutoregressiveCache {
    /// Creates an empty cache.
    pub fn empty() -> Self {
        Self {
            cross_attn: MhaCache::autoregressive_cross_attention(),
            self_attn: MhaCache::autoregressive(),
            pwff: PositionCache::default(),
            norms: Default::default(),
        }
    }
}

/// Cache of a private [`TransformerDecoder`] for autoregressive decoding.
#[derive(Debug)]
pub struct TransformerDecoderAutoregressiveCache {
    layers: Vec<TransformerDecoderLayerAutoregressiveCache>,
}
