use burn::config::Config;
use burn::module::{Module, ModuleDisplay};
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig, Rnn, RnnConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::{Classifier, Sequence};

/// Configuration of a [recurrent network](Recurrent).
#[derive(Config, Debug)]
pub struct RecurrentConfig {
    /// Number of classes.
    pub classes: usize,
    /// Width of the state.
    #[config(default = "128")]
    pub hidden: usize,
}

/// The paper's recurrent networks: one layer of 128 units that reads the rows of an image or the
/// words of a text, and a linear layer on its summary.
#[derive(Module, Debug)]
pub struct Recurrent<S: Module, C: Module> {
    /// From inputs to vectors.
    pub sequence: S,
    /// The recurrent layer.
    pub cell: C,
    /// From the summary to the classes.
    pub output: Private<Linear>,
}

/// A layer that reads vectors in order and has a state after each of them.
pub trait Cell: Module + ModuleDisplay {
    /// Returns the states.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, length, width]`
    /// - output: `[batch_size, length, hidden]`
    fn states(&self, vectors: Tensor<3>) -> Tensor<3>;
}

impl Cell for Private<Rnn> {
    fn states(&self, vectors: Tensor<3>) -> Tensor<3> {
        self.forward(vectors, None).0
    }
}

impl Cell for Private<Lstm> {
    fn states(&self, vectors: Tensor<3>) -> Tensor<3> {
        self.forward(vectors, None).0
    }
}

impl RecurrentConfig {
    /// Initializes an Elman network with `tanh`.
    pub fn rnn<S: Sequence>(&self, sequence: S, device: &Device) -> Recurrent<S, Private<Rnn>> {
        let cell = RnnConfig::new(sequence.width(), self.hidden, true).init(device).private();
        self.with_cell(sequence, cell, device)
    }

    /// Initializes a network of long short-term memory.
    pub fn lstm<S: Sequence>(&self, sequence: S, device: &Device) -> Recurrent<S, Private<Lstm>> {
        let cell = LstmConfig::new(sequence.width(), self.hidden, true).init(device).private();
        self.with_cell(sequence, cell, device)
    }

    fn with_cell<S: Sequence, C: Cell>(
        &self,
        sequence: S,
        cell: C,
        device: &Device,
    ) -> Recurrent<S, C> {
        let output = LinearConfig::new(self.hidden, self.classes).init(device).private();
        Recurrent { sequence, cell, output }
    }
}

impl<S: Sequence, C: Cell> Classifier for Recurrent<S, C> {
    type Inputs = S::Inputs;

    fn forward(&self, inputs: S::Inputs) -> Tensor<2> {
        let (vectors, padding) = self.sequence.vectors(inputs);
        let states = self.cell.states(vectors);
        self.output.forward(self.sequence.summary(states, padding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Rows;

    #[test]
    fn they_have_the_parameters_of_the_paper() {
        let device = Device::flex();
        let (config, rows) = (RecurrentConfig::new(10), Rows { width: 28 });
        // Burn has two biases for each gate: of the input and of the state.
        let gate = (28 + 1) * 128 + (128 + 1) * 128;
        let output = (128 + 1) * 10;
        assert_eq!(config.rnn(rows.clone(), &device).num_params(), gate + output);
        assert_eq!(config.lstm(rows, &device).num_params(), 4 * gate + output);
    }
}
