use std::ops::Range;

use burn::backend::Backend;

use super::value::Value;

/// The state between two positions, or its gradient: `[batch_size, d_hidden]`.
#[derive(Clone, Debug)]
pub(super) struct State<B: Backend> {
    pub(super) hidden: Value<B>,
    /// The cell of an LSTM; the other layers pass it on unchanged.
    pub(super) cell: Value<B>,
}

impl<B: Backend> State<B> {
    /// Returns the state of some examples.
    pub(super) fn examples(&self, examples: &Range<usize>) -> Self {
        let [hidden, cell] =
            [&self.hidden, &self.cell].map(|value| value.clone().examples(examples));
        Self { hidden, cell }
    }

    /// Joins the states of all parts of a batch.
    pub(super) fn cat(parts: Vec<Self>) -> Self {
        let (hidden, cell) = parts.into_iter().map(|part| (part.hidden, part.cell)).unzip();
        Self { hidden: Value::cat(hidden, 0), cell: Value::cat(cell, 0) }
    }
}

/// Gradients of one position.
pub(super) struct StepGrads<B: Backend> {
    /// Gradient of the projection of the input, `[batch_size, gates · d_hidden]`.
    pub(super) projected: Value<B>,
    /// Gradient of the product with the hidden state, where it differs from `projected`.
    pub(super) product: Option<Value<B>>,
    /// The inputs of the layers of the hidden state, one for each range of gates.
    pub(super) inputs: Vec<Value<B>>,
    /// Gradient of the state before this position.
    pub(super) carried: State<B>,
}
