use burn::tensor::Tensor;

/// What a layer that treats every position alike made of the positions so far.
#[derive(Debug, Default)]
pub(in crate::nn) struct PositionCache<const D: usize> {
    seen: Option<Tensor<D>>,
}

impl<const D: usize> PositionCache<D> {
    /// Applies `layer` to the last position of `input` alone when others are known, and appends it on
    /// axis `dim`.
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

    /// Applies `layer` the first time only.
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

/// `layer` on all positions of `[batch_size, positions, d_model]`, or, with a cache, on those that are new.
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

/// Cache of a private [`MultiHeadAttention`](burn::nn::attention::MultiHeadAttention), to decode one
/// position after another.
#[derive(Debug)]
pub struct MhaCache {
    pub(super) query: PositionCache<4>,
    pub(super) key: PositionCache<4>,
    pub(super) value: PositionCache<4>,
    pub(super) output: PositionCache<3>,
    /// Whether key and value never change.
    pub(super) cross: bool,
}

impl MhaCache {
    /// Query, key and value grow by one position at a time.
    pub fn autoregressive() -> Self {
        Self::new(false)
    }

    /// The query grows; key and value are those of the first call.
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

/// Cache of a [`PrivateCrossAttention`](super::PrivateCrossAttention) whose context does not change.
#[derive(Debug, Default)]
pub struct CrossAttentionCache {
    pub(super) key: PositionCache<4>,
    pub(super) value: PositionCache<4>,
}

impl CrossAttentionCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }
}
