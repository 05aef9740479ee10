//! A network with the shape of GPT-2, and the parameters that each way of fine-tuning trains.

use burn::module::{Module, Param, ParamGroup};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};
use burn_dp::DpError;
use burn_dp::losses::CrossEntropyLoss;
use burn_dp::model::LowRankAdapters;
use burn_dp::nn::{IntoPrivate, Private, TransformerEncoderInput};
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use clap::{Args, ValueEnum};

/// What fine-tuning trains.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinetuneWay {
    /// All parameters.
    Full,
    /// Low-rank adapters of the linear layers.
    Lora,
    /// Low-rank adapters of the linear layers, whose weights are packed in eight bits.
    Qlora,
    /// The biases.
    Bias,
}

/// Shape of the network.
#[derive(Args, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Transformer blocks; GPT-2 small has 12.
    #[arg(long, default_value_t = 2)]
    pub layers: usize,
    /// Width of a position.
    #[arg(long, default_value_t = 768)]
    pub width: usize,
    /// Heads of the attention.
    #[arg(long, default_value_t = 12)]
    pub heads: usize,
    /// Tokens of the vocabulary.
    #[arg(long, default_value_t = 50_257)]
    pub vocabulary: usize,
    /// Tokens of a sequence.
    #[arg(long, default_value_t = 256)]
    pub sequence: usize,
    /// Rank of the adapters.
    #[arg(long, default_value_t = 8)]
    pub rank: usize,
}

/// Embeddings, blocks with the norm first, and an output layer that is tied to the embedding.
#[derive(Module, Debug)]
pub(super) struct Gpt {
    tokens: Private<Embedding>,
    positions: Private<Param<Tensor<2>>>,
    blocks: Private<TransformerEncoder>,
    norm: Private<LayerNorm>,
}

impl Gpt {
    /// Creates the network with random parameters and freezes the parameters that are not trained.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the rank is zero.
    pub(super) fn new(shape: Shape, way: FinetuneWay, device: &Device) -> Result<Self, DpError> {
        let Shape { layers, width, heads, vocabulary, sequence, rank } = shape;
        let positions = [sequence, width];
        let positions = Tensor::random(positions, Distribution::Normal(0.0, 0.02), device);
        let blocks = TransformerEncoderConfig::new(width, 4 * width, heads, layers)
            .with_norm_first(true)
            .with_dropout(0.0);
        let model = Self {
            tokens: EmbeddingConfig::new(vocabulary, width).init(device).private(),
            positions: Param::from_tensor(positions).private(),
            blocks: blocks.init(device).private(),
            norm: LayerNormConfig::new(width).init(device).private(),
        };
        let adapters = LowRankAdapters::new().with_layers(
            ParamGroup::from_predicate("blocks"),
            rank,
            2.0 * rank as f64,
        );
        match way {
            FinetuneWay::Full => Ok(model),
            FinetuneWay::Lora => adapters.attach(model),
            FinetuneWay::Qlora => {
                let scheme = device.settings().quantization.scheme;
                adapters.with_packed_base(scheme).attach(model)
            }
            FinetuneWay::Bias => {
                let biases = ParamGroup::from_any_predicates(vec![".bias", ".beta"]);
                Ok(model.no_grad().set_require_grad_group(biases, true))
            }
        }
    }

    /// Returns deterministic sequences, each with one token more than the network reads. The next
    /// tokens are the targets; the class of a sequence is not used.
    pub(super) fn batch(shape: Shape, sequences: usize, device: &Device) -> Batch<Tensor<2, Int>> {
        let length = shape.sequence + 1;
        let token = |index: usize| ((index * 7919 + index / 13) % shape.vocabulary) as i64;
        let row = |row: usize| (0..length).map(move |at| token(row * 1009 + at));
        let tokens: Vec<i64> = (0..sequences).flat_map(row).collect();
        let tokens = Tensor::<1, Int>::from_data(tokens.as_slice(), device);
        let targets = Tensor::zeros([sequences], device);
        Batch { inputs: tokens.reshape([sequences, length]), targets }
    }
}

impl Classifier for Gpt {
    type Inputs = Tensor<2, Int>;

    /// Returns the scores of the next token at all positions but the last,
    /// `[batch_size · positions, vocabulary]`.
    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let [batch_size, length] = tokens.dims();
        let length = length - 1;
        let tokens = tokens.narrow(1, 0, length);
        let states = self.tokens.forward(tokens) + self.positions.forward(batch_size);
        let mask = generate_autoregressive_mask(batch_size, length, &states.device());
        let states = self.blocks.forward(TransformerEncoderInput::new(states).mask_attn(mask));
        self.tokens.attend(self.norm.forward(states)).flatten(0, 1)
    }

    /// Returns the mean over the positions of each sequence.
    fn losses(&self, loss: &CrossEntropyLoss, batch: Batch<Tensor<2, Int>>) -> Tensor<1> {
        let [batch_size, length] = batch.inputs.dims();
        let next = batch.inputs.clone().narrow(1, 1, length - 1);
        let scores = self.forward(batch.inputs);
        let [_, vocabulary] = scores.dims();
        loss.forward_sequence(scores.reshape([batch_size, length - 1, vocabulary]), next)
    }

    fn mean_loss(&self, batch: Batch<Tensor<2, Int>>) -> Tensor<1> {
        let [batch_size, length] = batch.inputs.dims();
        let next = batch.inputs.clone().narrow(1, 1, length - 1);
        let loss = CrossEntropyLossConfig::new().init(&next.device());
        loss.forward(self.forward(batch.inputs), next.reshape([batch_size * (length - 1)]))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp::model::{TrainableParameters, validate};

    use super::*;
    use crate::bench::agreement;

    const SHAPE: Shape =
        Shape { layers: 2, width: 8, heads: 2, vocabulary: 17, sequence: 5, rank: 2 };

    #[test]
    fn every_way_trains_its_parameters_and_no_others() {
        let device = Device::flex().autodiff();
        for (way, count) in [
            (FinetuneWay::Full, 17 * 8 + 5 * 8 + 2 * 8),
            (FinetuneWay::Lora, 0),
            (FinetuneWay::Qlora, 0),
            (FinetuneWay::Bias, 8),
        ] {
            let model = Gpt::new(SHAPE, way, &device).unwrap();
            assert!(validate(&model).is_ok());
            let trained = TrainableParameters::of(&model).unwrap();
            // Four layers of attention, two of the feed-forward network, two norms.
            let of_block = match way {
                FinetuneWay::Full => 4 * (64 + 8) + (8 * 32 + 32) + (32 * 8 + 8) + 2 * 16,
                FinetuneWay::Lora | FinetuneWay::Qlora => 4 * 2 * (8 + 8) + 2 * 2 * (8 + 32),
                FinetuneWay::Bias => 4 * 8 + 32 + 8 + 2 * 8,
            };
            assert_eq!(trained.num_values(), count + 2 * of_block, "{way:?}");
        }
    }

    #[test]
    fn private_algorithms_agree_on_every_way() {
        let device = Device::flex().autodiff();
        for way in [FinetuneWay::Full, FinetuneWay::Lora, FinetuneWay::Qlora, FinetuneWay::Bias] {
            let model = Gpt::new(SHAPE, way, &device).unwrap();
            agreement::check(&model, &Gpt::batch(SHAPE, 3, &device), "the small GPT").unwrap();
        }
    }

    #[test]
    fn there_is_one_loss_for_each_sequence() {
        let device = Device::flex().autodiff();
        let model = Gpt::new(SHAPE, FinetuneWay::Full, &device).unwrap();
        let batch = Gpt::batch(SHAPE, 3, &device);
        assert_eq!(model.forward(batch.inputs.clone()).dims(), [3 * 5, 17]);
        let loss = burn_dp::losses::CrossEntropyLossConfig::new().init();
        let losses = model.losses(&loss, batch.clone());
        assert_eq!(losses.dims(), [3]);
        let [mean, of_burn] =
            [losses.mean(), model.mean_loss(batch)].map(Tensor::into_scalar::<f32>);
        assert!((mean - of_burn).abs() < 1e-5, "{mean} {of_burn}");
    }
}
