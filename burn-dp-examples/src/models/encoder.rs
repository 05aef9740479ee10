use burn::module::Module;
use burn::nn::{Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{Bool, Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

/// One block of a transformer encoder, normalised first.
#[derive(Module, Debug)]
pub struct EncoderBlock {
    /// Queries, keys and values.
    pub projections: Vec<Private<Linear>>,
    /// From the heads back to the width.
    pub output: Private<Linear>,
    /// The two layers of the feed-forward network.
    pub feed_forward: Vec<Private<Linear>>,
    /// Before the attention and before the feed-forward network.
    pub norms: Vec<Private<LayerNorm>>,
    /// Number of heads.
    pub heads: usize,
}

impl EncoderBlock {
    pub(super) fn new(
        width: usize,
        feed_forward: usize,
        heads: usize,
        initializer: &Initializer,
        device: &Device,
    ) -> Self {
        let linear = |input, output| {
            let config = LinearConfig::new(input, output).with_initializer(initializer.clone());
            config.init(device).private()
        };
        let norm = || LayerNormConfig::new(width).init(device).private();
        Self {
            projections: (0..3).map(|_| linear(width, width)).collect(),
            output: linear(width, width),
            feed_forward: vec![linear(width, feed_forward), linear(feed_forward, width)],
            norms: vec![norm(), norm()],
            heads,
        }
    }

    pub(super) fn forward(&self, input: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<3> {
        let attended = self.attention(self.norms[0].forward(input.clone()), padding);
        let input = input + attended;
        let inner = gelu(self.feed_forward[0].forward(self.norms[1].forward(input.clone())));
        input + self.feed_forward[1].forward(inner)
    }

    fn attention(&self, input: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<3> {
        let [batch, length, width] = input.dims();
        let size = width / self.heads;
        let project = |layer: &Private<Linear>| {
            layer.forward(input.clone()).reshape([batch, length, self.heads, size]).swap_dims(1, 2)
        };
        let [query, key, value] = [0, 1, 2].map(|index| project(&self.projections[index]));
        let mut scores = query.matmul(key.transpose()).div_scalar((size as f64).sqrt());
        if let Some(padding) = padding {
            let padding = padding.reshape([batch, 1, 1, length]);
            scores = scores.mask_fill(padding.expand([batch, self.heads, length, length]), -1e9);
        }
        let context = softmax(scores, 3).matmul(value).swap_dims(1, 2);
        self.output.forward(context.reshape([batch, length, width]))
    }
}
