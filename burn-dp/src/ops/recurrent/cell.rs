use std::ops::Range;

use burn::backend::Backend;

use super::gate_layers::GateLayers;
use super::state::{State, StepGrads};
use super::value::Value;
use super::{GateFunction, gru, lstm, rnn};

/// How the hidden state of one position follows from that of the position before.
///
/// `clip` bounds the magnitude of the cell of an LSTM, and of the hidden state of the others.
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

/// What the forward pass of one position keeps for the backward pass.
#[derive(Clone, Debug)]
pub(super) enum Step<B: Backend> {
    Rnn(rnn::Step<B>),
    Lstm(lstm::Step<B>),
    Gru(gru::Step<B>),
}

impl Cell {
    /// Returns the ranges of gates whose layers of the hidden state have one input.
    pub(super) fn uses(self, gates: usize) -> Vec<Range<usize>> {
        match self {
            // The input of the candidate is the hidden state scaled by the reset gate.
            Self::Gru { reset_after: false, .. } => vec![0..2, 2..3],
            _ => vec![0..gates; 1],
        }
    }

    /// Whether the state has a cell and a hidden state.
    pub(super) fn has_cell(self) -> bool {
        matches!(self, Self::Lstm { .. })
    }

    /// Computes one position: the next state, and what the backward pass needs.
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

    /// Computes the gradients of one position from the gradient of the state behind it.
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
            _ => unreachable!("the steps of a sequence belong to its cell"),
        }
    }
}
