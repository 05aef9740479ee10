//! The network: word vectors, an LSTM, and a linear layer, all private.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::tensor::{Device, Int, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

/// Classifies a text by the last state of an LSTM.
#[derive(Module, Debug)]
pub struct Network {
    words: Private<Embedding>,
    lstm: Private<Lstm>,
    output: Private<Linear>,
}

impl Network {
    /// Initializes the network for a vocabulary of this size.
    pub fn new(vocabulary: usize, device: &Device) -> Self {
        Self {
            words: EmbeddingConfig::new(vocabulary, 16).init(device).private(),
            lstm: LstmConfig::new(16, 24, true).init(device).private(),
            output: LinearConfig::new(24, 2).init(device).private(),
        }
    }

    /// Returns the scores of the classes.
    ///
    /// # Shapes
    ///
    /// - texts: `[batch_size, length]`
    /// - output: `[batch_size, 2]`
    pub fn forward(&self, texts: Tensor<2, Int>) -> Tensor<2> {
        let [_, length] = texts.dims();
        let (states, _) = self.lstm.forward(self.words.forward(texts), None);
        self.output.forward(states.narrow(1, length - 1, 1).squeeze_dim(1))
    }
}
