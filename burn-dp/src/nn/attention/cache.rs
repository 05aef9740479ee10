use burn::tensor::Tensor;

/// The outputs of a position-wise layer for the positions that were computed.
#[derive(Debug, Default)]
pub(in crate::nn) struct PositionCache<const D: usize> {
    seen: Option<Tensor<D>>,
}

impl<const D: usize> PositionCache<D> {
    /// Applies `layer` to all positions in the first call and to the last position of `input` in
    /// later calls. Returns all outputs, joined on axis `dim`.
    pub(in crate::nn) fn extend(
        &mut self,
        input: Tensor<3>,
        dim: usize,
        layer: impl Fn(Tensor<3>) -> Tensor<D>,
    ) -> Tensor<D> {
        let output = match self.seen.take() {
            Some(seen) => {
                let [_, positions, _] = input.dims();
                Tensor::cat(vec![seen, layer(input.narrow(1, positions - 1, 1))], dim)
            }
            None => layer(input),
        };
        self.seen = Some(output.clone());
        output
    }

    /// Applies `layer` in the first call, and returns the same output in later calls.
    pub(in crate::nn) fn once(
        &mut self,
        input: Tensor<3>,
        layer: impl Fn(Tensor<3>) -> Tensor<D>,
    ) -> Tensor<D> {
        let output = self.seen.take().unwrap_or_else(|| layer(input));
        self.seen = Some(output.clone());
        output
    }
}

/// Applies `layer` to all positions of `[batch_size, positions, d_model]` or, with a cache, to the
/// new positions.
pub(in crate::nn) fn extend(
    cache: Option<&mut PositionCache<3>>,
    input: Tensor<3>,
    layer: impl Fn(Tensor<3>) -> Tensor<3>,
) -> Tensor<3> {
    match cache {
        Some(cache) => cache.extend(input, 1, layer),
        None => layer(input),
    }
}

/// Cache of a private [`MultiHeadAttention`](burn::nn::attention::MultiHeadAttention) for
/// autoregressive decoding.
#[derive(Debug)]
pub struct MhaCache {
    pub(super) query: PositionCache<4>,
    pub(super) key: PositionCache<4>,
    pub(super) value: PositionCache<4>,
    pub(super) output: PositionCache<3>,
    /// Whether key and value are constant.
    pub(super) cross: bool,
}

impl MhaCache {
    /// Creates an empty cache whose query, key and value grow by one position in each call.
    pub fn autoregressive() -> Self {
        Self::new(false)
    }

    /// Creates an empty cache whose query grows. Key and value are taken from the first call.
    pub fn autoregressive_cross_attention() -> Self {
        Self::new(true)
    }

    fn new(cross: bool) -> Self {
        Self {
            query: PositionCache::default(),
            key: PositionCache::default(),
            value: PositionCache::default(),
            output: PositionCache::default(),
            cross,
        }
    }
}

/// Cache of a [`PrivateCrossAttention`](super::PrivateCrossAttention) with a constant context.
#[derive(Debug, Default)]
pub struct CrossAttentionCache {
    pub(super) key: PositionCache<4>,
    pub(super) value: PositionCache<4>,
}

impl CrossAttentionCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }
}
