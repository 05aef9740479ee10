use burn::config::Config;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_dp::nn::{IntoPrivate, Private};

use crate::data::shakespeare::{PADDING, Window};

/// Configuration of the [next-token network](NextToken).
#[derive(Config, Debug)]
pub struct NextTokenConfig {
    /// Number of different tokens.
    pub tokens: usize,
    /// Width of the embedding.
    #[config(default = "16")]
    pub embedding: usize,
    /// Width of the recurrent layer.
    #[config(default = "128")]
    pub hidden: usize,
    /// Whether the embedding is also the last layer.
    #[config(default = "false")]
    pub tied: bool,
}

/// Predicts the next character or word with an LSTM. User-level training needs no private layers;
/// the LSTM is one because of its faster kernels on the CPU.
///
/// # References
///
/// H. B. McMahan, D. Ramage, K. Talwar, L. Zhang: Learning differentially private recurrent
/// language models, 2018, section 3. O. Press, L. Wolf: Using the output embedding to improve
/// language models, 2017 (the tied last layer).
#[derive(Module, Debug)]
pub struct NextToken {
    /// From a token to its vector.
    pub embedding: Embedding,
    /// From the vectors so far to the state.
    pub lstm: Private<Lstm>,
    /// From the state to the scores of all tokens; if they are tied, to the width of the embedding.
    pub output: Linear,
    /// Whether the scores are products with the vectors of the embedding.
    pub tied: bool,
}

impl NextTokenConfig {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> NextToken {
        NextToken {
            embedding: EmbeddingConfig::new(self.tokens, self.embedding).init(device),
            lstm: LstmConfig::new(self.embedding, self.hidden, true).init(device).private(),
            output: LinearConfig::new(
                self.hidden,
                if self.tied { self.embedding } else { self.tokens },
            )
            .init(device),
            tied: self.tied,
        }
    }
}

/// Windows as tensors.
#[derive(Debug, Clone)]
pub struct WindowBatch {
    /// Tokens that are read, `[batch_size, length]`.
    pub inputs: Tensor<2, Int>,
    /// Tokens that are predicted, `[batch_size · length]`.
    pub targets: Tensor<1, Int>,
}

impl WindowBatch {
    /// Stacks windows of the same length.
    ///
    /// # Panics
    ///
    /// Panics if there is no window.
    pub fn new(windows: &[Window], device: &Device) -> Self {
        let length = windows[0].len() - 1;
        let tokens = |from: usize| -> Vec<i32> {
            let window = |window: &Window| -> Vec<i32> {
                window[from..from + length].iter().map(|&token| i32::from(token)).collect()
            };
            windows.iter().flat_map(window).collect()
        };
        let inputs = TensorData::new(tokens(0), [windows.len(), length]);
        let targets = TensorData::new(tokens(1), [windows.len() * length]);
        Self {
            inputs: Tensor::from_data(inputs, device),
            targets: Tensor::from_data(targets, device),
        }
    }
}

impl NextToken {
    /// Returns the scores of the token after each position, not normalized.
    ///
    /// # Shapes
    ///
    /// - inputs: `[batch_size, length]`
    /// - output: `[batch_size, length, tokens]`
    pub fn forward(&self, inputs: Tensor<2, Int>) -> Tensor<3> {
        let (states, _) = self.lstm.forward(self.embedding.forward(inputs), None);
        let output = self.output.forward(states);
        match self.tied {
            false => output,
            true => output.matmul(self.embedding.weight.val().transpose().unsqueeze()),
        }
    }

    /// Returns the mean cross entropy of the predictions without padding, `[1]`, and their scores,
    /// `[batch_size · length, tokens]`.
    pub fn loss(&self, batch: WindowBatch) -> (Tensor<1>, Tensor<2>) {
        let scores: Tensor<2> = self.forward(batch.inputs).flatten(0, 1);
        let cross_entropy = CrossEntropyLossConfig::new()
            .with_pad_tokens(Some(vec![usize::from(PADDING)]))
            .init(&scores.device());
        (cross_entropy.forward(scores.clone(), batch.targets), scores)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_has_the_parameters_of_its_layers() {
        let model = NextTokenConfig::new(98).init(&Device::flex());
        // Burn's gates have a bias for the input and one for the state.
        let lstm = 4 * ((16 + 1) * 128 + (128 + 1) * 128);
        assert_eq!(model.num_params(), 98 * 16 + lstm + (128 + 1) * 98);
        let tied = NextTokenConfig::new(98).with_tied(true).init(&Device::flex());
        assert_eq!(tied.num_params(), 98 * 16 + lstm + (128 + 1) * 16);
    }

    #[test]
    fn padding_has_no_loss_and_only_the_past_is_read() {
        let device = Device::flex();
        for tied in [false, true] {
            only_the_past_is_read(NextTokenConfig::new(10).with_hidden(8).with_tied(tied), &device);
        }
    }

    fn only_the_past_is_read(config: NextTokenConfig, device: &Device) {
        let model = config.init(device);
        let loss = |windows: &[Window]| {
            model.loss(WindowBatch::new(windows, device)).0.into_scalar::<f64>()
        };
        let (short, long) = (vec![3, 4, 5, 0, 0], vec![3, 4, 5]);
        assert!((loss(&[short]) - loss(&[long])).abs() < 1e-6);
        let scores = |window: Window| model.loss(WindowBatch::new(&[window], device)).1;
        let (a, b) = (scores(vec![3, 4, 5, 6]), scores(vec![3, 4, 9, 9]));
        a.narrow(0, 0, 2).into_data().assert_eq(&b.narrow(0, 0, 2).into_data(), true);
    }
}
