use burn::nn::transformer::{TransformerEncoder, TransformerEncoderLayer};
use burn::tensor::{Bool, Tensor};

use super::super::attention::{MhaCache, MhaInput, PositionCache, extend, multi_head};
use super::super::dropout::dropout;
use super::super::layer_norm::layer_norm;
use super::super::private::Private;
use super::feed_forward::feed_forward;

/// Input of a private [`TransformerEncoder`], built like Burn's input, whose fields are private.
#[derive(Clone, Debug)]
pub struct TransformerEncoderInput {
    tensor: Tensor<3>,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
}

impl TransformerEncoderInput {
    /// Creates an input without masks.
    ///
    /// # Shapes
    ///
    /// - tensor: `[batch_size, positions, d_model]`
    pub fn new(tensor: Tensor<3>) -> Self {
        Self { tensor, mask_pad: None, mask_attn: None }
    }

    /// Masks the positions that are `true`: `[batch_size, positions]`.
    pub fn mask_pad(mut self, mask: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask);
        self
    }

    /// Masks the pairs of positions that are `true`: `[batch_size, positions, positions]`.
    pub fn mask_attn(mut self, mask: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask);
        self
    }
}

impl Private<TransformerEncoder> {
    /// Applies the encoder.
    ///
    /// # Shapes
    ///
    /// - input: see [`TransformerEncoderInput`]
    /// - output: `[batch_size, positions, d_model]`
    ///
    /// # Panics
    ///
    /// Panics if the last axes are not `d_model`, or if batch sizes or lengths do not match.
    pub fn forward(&self, input: TransformerEncoderInput) -> Tensor<3> {
        let TransformerEncoderInput { tensor, mask_pad, mask_attn } = input;
        self.inner
            .layers
            .iter()
            .fold(tensor, |x, layer| encode(layer, x, mask_pad.clone(), mask_attn.clone(), None))
    }

    /// Applies the encoder to the last position of the input and takes the other positions from
    /// `cache`.
    ///
    /// # Shapes
    ///
    /// See [`forward`](Self::forward).
    ///
    /// # Panics
    ///
    /// Panics like [`forward`](Self::forward), or if the cache belongs to another encoder.
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerEncoderInput,
        cache: &mut TransformerEncoderAutoregressiveCache,
    ) -> Tensor<3> {
        let TransformerEncoderInput { tensor, mask_pad, mask_attn } = input;
        let layers = &self.inner.layers;
        assert_eq!(cache.layers.len(), layers.len(), "the cache belongs to another encoder");
        layers.iter().zip(&mut cache.layers).fold(tensor, |x, (layer, cache)| {
            encode(layer, x, mask_pad.clone(), mask_attn.clone(), Some(cache))
        })
    }

    /// Creates an empty cache for this encoder.
    pub fn new_autoregressive_cache(&self) -> TransformerEncoderAutoregressiveCache {
        let empty = |_: &_| TransformerEncoderLayerAutoregressiveCache::empty();
        TransformerEncoderAutoregressiveCache {
            layers: self.inner.layers.iter().map(empty).collect(),
        }
    }
}

impl Private<TransformerEncoderLayer> {
    /// Applies one layer.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch_size, positions, d_model]`
    /// - mask_pad: `[batch_size, positions]`
    /// - mask_attn: `[batch_size, positions, positions]`
    ///
    /// # Panics
    ///
    /// Panics if the last axes are not `d_model`, or if batch sizes or lengths do not match.
    pub fn forward(
        &self,
        input: Tensor<3>,
        mask_pad: Option<Tensor<2, Bool>>,
        mask_attn: Option<Tensor<3, Bool>>,
    ) -> Tensor<3> {
        encode(&self.inner, input, mask_pad, mask_attn, None)
    }

    /// Applies one layer to the last position of the input and takes the other positions from
    /// `cache`.
    ///
    /// Shapes and panics: see [`forward`](Self::forward).
    pub fn forward_autoregressive_inference(
        &self,
        input: Tensor<3>,
        mask_pad: Option<Tensor<2, Bool>>,
        mask_attn: Option<Tensor<3, Bool>>,
        cache: &mut TransformerEncoderLayerAutoregressiveCache,
    ) -> Tensor<3> {
        encode(&self.inner, input, mask_pad, mask_attn, Some(cache))
    }
}

/// Applies one layer to all positions or, with a cache, to the new positions.
fn encode(
    layer: &TransformerEncoderLayer,
    input: Tensor<3>,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
    cache: Option<&mut TransformerEncoderLayerAutoregressiveCache>,
) -> Tensor<3> {
    let (mha, pwff, norm_1, norm_2) = match cache {
        Some(TransformerEncoderLayerAutoregressiveCache { mha, pwff, norm_1, norm_2 }) => {
            (Some(mha), Some(pwff), Some(norm_1), Some(norm_2))
        }
        None => (None, None, None, None),
    };
    let first_norm = |x| extend(norm_1, x, |x| layer_norm(&layer.norm_1, x));
    let second_norm = |x| extend(norm_2, x, |x| layer_norm(&layer.norm_2, x));
    let attention = |x| {
        let input = MhaInput::self_attn(x).with_masks(mask_pad, mask_attn);
        dropout(&layer.dropout, multi_head(&layer.mha, input, mha).context)
    };
    let feed_forward =
        |x| dropout(&layer.dropout, extend(pwff, x, |x| feed_forward(&layer.pwff, x)));

    let x = input;
    if layer.norm_first {
        let x = x.clone() + attention(second_norm(x));
        x.clone() + feed_forward(first_norm(x))
    } else {
        let x = first_norm(x.clone() + attention(x));
        second_norm(x.clone() + feed_forward(x))
    }
}

/// Cache of one private [`TransformerEncoderLayer`].
#[derive(Debug)]
pub struct TransformerEncoderLayerAutoregressiveCache {
    mha: MhaCache,
    pwff: PositionCache<3>,
    norm_1: PositionCache<3>,
    norm_2: PositionCache<3>,
}

impl TransformerEncoderLayerAutoregressiveCache {
    /// Creates an empty cache.
    pub fn empty() -> Self {
        Self {
            mha: MhaCache::autoregressive(),
            pwff: PositionCache::default(),
            norm_1: PositionCache::default(),
            norm_2: PositionCache::default(),
        }
    }
}

/// Cache of a private [`TransformerEncoder`] for autoregressive decoding.
#[derive(Debug)]
pub struct TransformerEncoderAutoregressiveCache {
    layers: Vec<TransformerEncoderLayerAutoregressiveCache>,
}
