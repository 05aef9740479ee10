use std::ops::Range;

use burn::backend::Backend;

use super::{GateFunction, gru, lstm, rnn, value::Value};

/// How the hidden state of one position follows from that of the position before.
///
/// `clip` bounds the magnitude of what is carried on: the cell of an LSTM, else the hidden state.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// One gate.
    Rnn {
        /// Of the gate.
        activation: GateFunction,
        /// Of the hidden state.
        clip: Option<f64>,
    },
    /// Gates: input, forget (unless it is coupled), output, candidate.
    Lstm {
        /// Whether the forget gate is one minus the input gate.
        coupled: bool,
        /// Of input, forget and output gate.
        gates: GateFunction,
        /// Of the candidate of the cell.
        candidate: GateFunction,
        /// Of the cell, for the hidden state.
        hidden: GateFunction,
        /// Of the cell.
        clip: Option<f64>,
    },
    /// Gates: update, reset, candidate.
    Gru {
        /// Whether the reset gate scales the product with the hidden state, or the hidden state.
        reset_after: bool,
        /// Of update and reset gate.
        gates: GateFunction,
        /// Of the candidate.
        candidate: GateFunction,
        /// Of the hidden state.
        clip: Option<f64>,
    },
}

/// What is carried from one position to the next, or its gradient: `[batch_size, d_hidden]`.
#[derive(Clone, Debug)]
pub(super) struct State<B: Backend> {
    pub(super) hidden: Value<B>,
    /// Of an LSTM; other cells pass it on.
    pub(super) cell: Value<B>,
}

/// The linear layers of all gates that see the same, side by side.
#[derive(Clone, Debug)]
pub(super) struct GateLayers<B: Backend> {
    /// `[d, gates · d_hidden]`.
    pub(super) weight: Value<B>,
    /// `[1, gates · d_hidden]`.
    pub(super) bias: Value<B>,
}

impl<B: Backend> GateLayers<B> {
    /// Product of the hidden state with the gates `range`, and their bias.
    pub(super) fn forward(&self, hidden: Value<B>, range: Range<usize>) -> Value<B> {
        let [size, features] = self.weight.dims();
        let (start, length) = (range.start * size, range.len() * size);
        if length == features {
            return hidden.matmul(self.weight.clone()) + self.bias.clone();
        }
        hidden.matmul(self.weight.clone().narrow(1, start, length))
            + self.bias.clone().narrow(1, start, length)
    }

    /// Product of the input at all positions with all gates, and their bias: `[positions, batch_size, gates
    /// · d_hidden]` of `[batch_size, positions, d_input]`.
    pub(super) fn project(&self, input: Value<B>) -> Value<B> {
        let [batch_size, positions, d_input] = input.dims();
        let [_, features] = self.weight.dims();
        let rows = input.reshape([batch_size * positions, d_input]);
        (rows.matmul(self.weight.clone()) + self.bias.clone())
            .reshape([batch_size, positions, features])
            .swap_dims(0, 1)
    }

    /// Gradient of the hidden state from that of the product with the gates `range`.
    pub(super) fn backward(weight: &Value<B>, grad: Value<B>, range: Range<usize>) -> Value<B> {
        let [size, features] = weight.dims();
        let (start, length) = (range.start * size, range.len() * size);
        let weight = weight.clone();
        let weight = if length == features { weight } else { weight.narrow(1, start, length) };
        grad.matmul(weight.swap_dims(0, 1))
    }
}

/// What one position leaves for the backward pass.
#[derive(Clone, Debug)]
pub(super) enum Step<B: Backend> {
    Rnn(rnn::Step<B>),
    Lstm(lstm::Step<B>),
    Gru(gru::Step<B>),
}

/// Gradients of one position.
pub(super) struct StepGrads<B: Backend> {
    /// Of the projection of the input, `[batch_size, gates · d_hidden]`.
    pub(super) projected: Value<B>,
    /// Of the product with the hidden state, where it is another one.
    pub(super) product: Option<Value<B>>,
    /// What the weights were multiplied with, for each of the [uses](Cell::uses).
    pub(super) inputs: Vec<Value<B>>,
    /// Of what was carried to this position.
    pub(super) carried: State<B>,
}

impl Cell {
    /// The gates that see the same input together.
    pub(super) fn uses(self, gates: usize) -> Vec<Range<usize>> {
        match self {
            // The candidate of this one sees what the reset gate leaves of the hidden state.
            Self::Gru { reset_after: false, .. } => vec![0..2, 2..3],
            _ => vec![0..gates; 1],
        }
    }

    /// Whether there is a cell besides the hidden state.
    pub(super) fn has_cell(self) -> bool {
        matches!(self, Self::Lstm { .. })
    }

    pub(super) fn step<B: Backend>(
        self,
        projected: Value<B>,
        state: State<B>,
        layer: &GateLayers<B>,
    ) -> (State<B>, Step<B>) {
        match self {
            Self::Rnn { activation, clip } => {
                let (state, step) = rnn::forward(activation, clip, projected, state, layer);
                (state, Step::Rnn(step))
            }
            Self::Lstm { coupled, gates, candidate, hidden, clip } => {
                let functions = lstm::Functions { coupled, gates, candidate, hidden, clip };
                let (state, step) = functions.forward(projected, state, layer);
                (state, Step::Lstm(step))
            }
            Self::Gru { reset_after, gates, candidate, clip } => {
                let functions = gru::Functions { reset_after, gates, candidate, clip };
                let (state, step) = functions.forward(projected, state, layer);
                (state, Step::Gru(step))
            }
        }
    }

    pub(super) fn step_backward<B: Backend>(
        self,
        step: Step<B>,
        grad: State<B>,
        weight: &Value<B>,
    ) -> StepGrads<B> {
        match (self, step) {
            (Self::Rnn { activation, clip }, Step::Rnn(step)) => {
                rnn::backward(activation, clip, step, grad, weight)
            }
            (Self::Lstm { coupled, gates, candidate, hidden, clip }, Step::Lstm(step)) => {
                lstm::Functions { coupled, gates, candidate, hidden, clip }
                    .backward(step, grad, weight)
            }
            (Self::Gru { reset_after, gates, candidate, clip }, Step::Gru(step)) => {
                gru::Functions { reset_after, gates, candidate, clip }.backward(step, grad, weight)
            }
            _ => unreachable!("the steps of a sequence are those of its cell"),
        }
    }
}
