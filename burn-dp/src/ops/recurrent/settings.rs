//! The settings of the cells.

/// An activation whose derivative can be computed from its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateFunction {
    /// The input.
    Identity,
    /// The positive part.
    Relu,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

/// The cell of a plain recurrent layer, with one gate.
#[derive(Clone, Copy, Debug)]
pub struct RnnCell {
    /// Activation of the gate.
    pub(crate) activation: GateFunction,
    /// Bound on the magnitude of the hidden state.
    pub(crate) clip: Option<f64>,
}

/// The cell of an LSTM, with the gates input, forget (unless it is coupled), output and candidate.
#[derive(Clone, Copy, Debug)]
pub struct LstmCell {
    /// Whether the forget gate is one minus the input gate.
    pub(crate) coupled: bool,
    /// Activation of the input, forget and output gates.
    pub(crate) gates: GateFunction,
    /// Activation of the candidate.
    pub(crate) candidate: GateFunction,
    /// Activation of the cell, for the hidden state.
    pub(crate) hidden: GateFunction,
    /// Bound on the magnitude of the cell.
    pub(crate) clip: Option<f64>,
}

impl LstmCell {
    /// Returns the number of gates without the candidate.
    pub(in crate::ops) fn sigmoid_gates(self) -> usize {
        if self.coupled { 2 } else { 3 }
    }
}

/// The cell of a GRU, with the gates update, reset and candidate.
#[derive(Clone, Copy, Debug)]
pub struct GruCell {
    /// Whether the reset gate scales the product with the hidden state, instead of the hidden
    /// state.
    pub(crate) reset_after: bool,
    /// Activation of the update and reset gates.
    pub(crate) gates: GateFunction,
    /// Activation of the candidate.
    pub(crate) candidate: GateFunction,
    /// Bound on the magnitude of the hidden state.
    pub(crate) clip: Option<f64>,
}
