use burn::backend::Backend;

use super::value::Value;

/// The state between two positions, or its gradient: `[batch_size, d_hidden]`.
#[derive(Clone, Debug)]
pub(super) struct State<B: Backend> {
    pub(super) hidden: Value<B>,
    /// The cell of an LSTM; the other layers pass it on unchanged.
    pub(super) cell: Value<B>,
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
