use std::ops::Range;

use burn::backend::Backend;

use super::gate_layers::Products;
use super::state::{State, StepGrads};
use super::value::Value;
use super::{FusedOps, GruCell, LstmCell, RnnCell, gru, lstm, rnn};

/// The computation of the hidden state of one position from the previous hidden state.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// A plain recurrent layer.
    Rnn(RnnCell),
    /// A long short-term memory.
    Lstm(LstmCell),
    /// A gated recurrent unit.
    Gru(GruCell),
}

/// The values that the forward pass of one position keeps for the backward pass.
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
            Self::Gru(GruCell { reset_after: false, .. }) => vec![0..2, 2..3],
            _ => vec![0..gates; 1],
        }
    }

    /// Returns whether the state has a cell and a hidden state.
    pub(super) fn has_cell(self) -> bool {
        matches!(self, Self::Lstm(_))
    }

    /// Computes one position: the next state, and the values that the backward pass needs.
    pub(super) fn step<B: FusedOps>(
        self,
        projected: Value<B>,
        state: State<B>,
        layer: &Products<B>,
    ) -> (State<B>, Step<B>) {
        match self {
            Self::Rnn(cell) => {
                let (state, step) = cell.forward(projected, state, layer);
                (state, Step::Rnn(step))
            }
            Self::Lstm(cell) => {
                let (state, step) = cell.forward(projected, state, layer);
                (state, Step::Lstm(step))
            }
            Self::Gru(cell) => {
                let (state, step) = cell.forward(projected, state, layer);
                (state, Step::Gru(step))
            }
        }
    }

    /// Computes the gradients of one position from the gradient of the state after it.
    pub(super) fn step_backward<B: FusedOps>(
        self,
        step: Step<B>,
        grad: State<B>,
        transposed: &Products<B>,
    ) -> StepGrads<B> {
        match (self, step) {
            (Self::Rnn(cell), Step::Rnn(step)) => cell.backward(step, grad, transposed),
            (Self::Lstm(cell), Step::Lstm(step)) => cell.backward(step, grad, transposed),
            (Self::Gru(cell), Step::Gru(step)) => cell.backward(step, grad, transposed),
            _ => unreachable!("the steps of a sequence belong to its cell"),
        }
    }
}
