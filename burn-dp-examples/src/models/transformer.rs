use burn::config::Config;
use burn::module::Module;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{
    Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig, PositionalEncoding,
    PositionalEncodingConfig,
};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private, TransformerEncoderInput};

use super::sequence::mean;
use super::{Classifier, Sequence};

/// Configuration of the [transformer](Transformer).
#[derive(Config, Debug)]
pub struct TransformerConfig {
    /// Number of classes.
    pub classes: usize,
    /// Maximum length of a sequence.
    pub length: usize,
    /// Width of the encoder.
    #[config(default = "64")]
    pub width: usize,
    /// Width between the two layers of the feed-forward network.
    #[config(default = "128")]
    pub feed_forward: usize,
    /// Number of heads of the attention.
    #[config(default = "4")]
    pub heads: usize,
}

/// The paper's transformer: one encoder block with positional encoding, whose mean over the
/// positions is classified by a linear layer.
///
/// The normalization comes first in each half of the block, and once more after the mean, which is
/// small where many words are averaged. There is no dropout: its noise is small compared with the
/// noise of privacy.
#[derive(Module, Debug)]
pub struct Transformer<S: Module> {
    /// From inputs to vectors.
    pub sequence: S,
    /// To the width of the encoder, if the vectors have another width.
    pub input: Option<Private<Linear>>,
    /// Adds sines of the position.
    pub positions: PositionalEncoding,
    /// The encoder block.
    pub encoder: Private<TransformerEncoder>,
    /// Normalizes the mean.
    pub norm: Private<LayerNorm>,
    /// From the mean to the classes.
    pub output: Private<Linear>,
}

impl TransformerConfig {
    /// Initializes the network.
    pub fn init<S: Sequence>(&self, sequence: S, device: &Device) -> Transformer<S> {
        let width = sequence.width();
        let linear = |input, output| LinearConfig::new(input, output).init(device).private();
        // Small, as in BERT: before training, the block passes on its input.
        let small = Initializer::Normal { mean: 0.0, std: 0.02 };
        let encoder = TransformerEncoderConfig::new(self.width, self.feed_forward, self.heads, 1)
            .with_norm_first(true)
            .with_dropout(0.0)
            .with_initializer(small)
            .init(device);
        Transformer {
            sequence,
            input: (width != self.width).then(|| linear(width, self.width)),
            positions: PositionalEncodingConfig::new(self.width)
                .with_max_sequence_size(self.length)
                .init(device),
            encoder: encoder.private(),
            norm: LayerNormConfig::new(self.width).init(device).private(),
            output: linear(self.width, self.classes),
        }
    }
}

impl<S: Sequence> Classifier for Transformer<S> {
    type Inputs = S::Inputs;

    fn forward(&self, inputs: S::Inputs) -> Tensor<2> {
        let (mut vectors, padding) = self.sequence.vectors(inputs);
        if let Some(input) = &self.input {
            vectors = input.forward(vectors);
        }
        let placed = self.positions.forward(vectors.clone());
        // The block adds to its input. Without the positions, which are the same for every example
        // and longer than most vectors, the mean consists only of the words.
        let positions = placed.clone() - vectors;
        let mut input = TransformerEncoderInput::new(placed);
        if let Some(padding) = &padding {
            input = input.mask_pad(padding.clone());
        }
        let states = self.encoder.forward(input) - positions;
        self.output.forward(self.norm.forward(mean(states, padding)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Words;

    #[test]
    fn it_has_one_encoder_block() {
        let device = Device::flex();
        let model = TransformerConfig::new(2, 50).init(Words::trained(1_000, 64, &device), &device);
        let linear = |input: usize, output: usize| (input + 1) * output;
        let block = 4 * linear(64, 64) + linear(64, 128) + linear(128, 64) + 2 * 2 * 64;
        let expected = 1_000 * 64 + block + 2 * 64 + linear(64, 2);
        assert_eq!(model.num_params(), expected);
    }
}
