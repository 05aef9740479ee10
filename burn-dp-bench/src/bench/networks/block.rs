use burn::module::Module;
use burn::nn::attention::{
    MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask,
};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::{gelu, relu};
use burn::tensor::{Bool, Device, Tensor};
use burn_dp_examples::models::Classifier;

use super::layer::{Attend, Forward, Layer};

/// Shape of a [stack of blocks](Blocks).
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockShape {
    /// Number of blocks.
    pub(super) depth: usize,
    /// Width of a position.
    pub(super) width: usize,
    /// Number of heads of the attention.
    pub(super) heads: usize,
    /// Width between the two layers of the feed-forward network.
    pub(super) feed_forward: usize,
    /// Whether this is GPT-2: normalization first, GELU, and no attention to later positions.
    /// Otherwise normalization comes last and the activation is ReLU.
    pub(super) is_gpt2: bool,
    /// Number of classes.
    pub(super) classes: usize,
}

/// Transformer blocks on given embeddings, whose mean over the positions is classified.
#[derive(Module, Debug)]
pub(super) struct Blocks<A: Module, N: Module, L: Module> {
    blocks: Vec<Block<A, N, L>>,
    norm: Option<N>,
    output: L,
}

/// Attention and a feed-forward network, each with a shortcut and a normalization.
#[derive(Module, Debug)]
struct Block<A: Module, N: Module, L: Module> {
    attention: A,
    norm1: N,
    fc1: L,
    fc2: L,
    norm2: N,
}

impl<A, N, L> Blocks<A, N, L>
where
    A: Layer<MultiHeadAttention>,
    N: Layer<LayerNorm>,
    L: Layer<Linear>,
{
    /// Creates the network.
    pub(super) fn new(shape: BlockShape, device: &Device) -> Self {
        let BlockShape { width, feed_forward, .. } = shape;
        let linear = |input, output| L::of(LinearConfig::new(input, output).init(device));
        let norm = || N::of(LayerNormConfig::new(width).init(device));
        let attention = MultiHeadAttentionConfig::new(width, shape.heads).with_dropout(0.0);
        let block = |_| Block {
            attention: A::of(attention.init(device)),
            norm1: norm(),
            fc1: linear(width, feed_forward),
            fc2: linear(feed_forward, width),
            norm2: norm(),
        };
        Self {
            blocks: (0..shape.depth).map(block).collect(),
            norm: shape.is_gpt2.then(norm),
            output: linear(width, shape.classes),
        }
    }
}

impl<A, N, L> Block<A, N, L>
where
    A: Layer<MultiHeadAttention> + Attend,
    N: Layer<LayerNorm> + Forward<3>,
    L: Layer<Linear> + Forward<3>,
{
    fn norm_last(&self, input: Tensor<3>) -> Tensor<3> {
        let attended = self.attention.attend(input.clone(), None);
        let middle = self.norm1.apply(input + attended);
        let hidden = relu(self.fc1.apply(middle.clone()));
        self.norm2.apply(middle + self.fc2.apply(hidden))
    }

    fn norm_first(&self, input: Tensor<3>, mask: Tensor<3, Bool>) -> Tensor<3> {
        let attended = self.attention.attend(self.norm1.apply(input.clone()), Some(mask));
        let middle = input + attended;
        let hidden = gelu(self.fc1.apply(self.norm2.apply(middle.clone())));
        middle + self.fc2.apply(hidden)
    }
}

impl<A, N, L> Classifier for Blocks<A, N, L>
where
    A: Layer<MultiHeadAttention> + Attend,
    N: Layer<LayerNorm> + Forward<3>,
    L: Layer<Linear> + Forward<2> + Forward<3>,
{
    type Inputs = Tensor<4>;

    fn forward(&self, embeddings: Tensor<4>) -> Tensor<2> {
        let [batch_size, _, length, _] = embeddings.dims();
        let mut states: Tensor<3> = embeddings.squeeze_dim(1);
        let mask = self
            .norm
            .as_ref()
            .map(|_| generate_autoregressive_mask(batch_size, length, &states.device()));
        for block in &self.blocks {
            states = match &mask {
                Some(mask) => block.norm_first(states, mask.clone()),
                None => block.norm_last(states),
            };
        }
        if let Some(norm) = &self.norm {
            states = norm.apply(states);
        }
        let mean: Tensor<2> = states.mean_dim(1).squeeze_dim(1);
        self.output.apply(mean)
    }
}
