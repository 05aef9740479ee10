use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::{GateFunction, GateParameters, Recurrence};
use crate::ops::LayerOps;

/// Weights and biases of the gates.
pub(crate) type GateTensors = (Vec<Tensor<2>>, Vec<Tensor<1>>);

/// Applies a recurrent layer.
///
/// # Shapes
///
/// - input: `[batch_size, positions, d_input]`, at least one of each
/// - state: hidden state and cell, `[batch_size, d_hidden]` each; only an LSTM uses the cell
/// - of_input: weights `[d_input, d_hidden]` and biases `[d_hidden]` for every gate
/// - of_hidden: weights `[d_hidden, d_hidden]` and biases `[d_hidden]` for every gate
/// - output: the hidden states followed, for an LSTM, by the last cell,
///   `[positions (+ 1), batch_size, d_hidden]`
pub(crate) fn recurrent(
    input: Tensor<3>,
    state: [Tensor<2>; 2],
    of_input: GateTensors,
    of_hidden: GateTensors,
    recurrence: Recurrence,
) -> Tensor<3> {
    let [hidden, cell] = state;
    let output = Dispatch::parametric_recurrent(
        input.into_dispatch(),
        hidden.into_dispatch(),
        cell.into_dispatch(),
        parameters(of_input),
        parameters(of_hidden),
        recurrence,
    );
    Tensor::from_dispatch(output)
}

/// Applies a gate function to every value, with the native kernel of the backend.
pub(crate) fn activation<const D: usize>(input: Tensor<D>, function: GateFunction) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::activation(input.into_dispatch(), function))
}

fn parameters((weights, biases): GateTensors) -> GateParameters<Dispatch> {
    GateParameters::new(
        weights.into_iter().map(Tensor::into_dispatch).collect(),
        biases.into_iter().map(Tensor::into_dispatch).collect(),
    )
}
