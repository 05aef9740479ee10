use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::{HiddenParameters, Recurrence, RecurrentOps};

/// A recurrent layer over projected inputs.
///
/// # Shapes
///
/// - projected: `[positions, batch_size, gates · d_hidden]`, at least one position
/// - state: hidden state and cell, `[batch_size, d_hidden]` each; only an LSTM looks at the cell
/// - weights: `[d_hidden, d_hidden]` for every gate
/// - biases: `[d_hidden]` for every gate
/// - output: the hidden states and, of an LSTM, the last cell behind them, `[positions (+ 1),
///   batch_size, d_hidden]`
pub(crate) fn recurrent(
    projected: Tensor<3>,
    state: [Tensor<2>; 2],
    weights: Vec<Tensor<2>>,
    biases: Vec<Tensor<1>>,
    recurrence: Recurrence,
) -> Tensor<3> {
    let [hidden, cell] = state;
    let output = Dispatch::parametric_recurrent(
        projected.into_dispatch(),
        hidden.into_dispatch(),
        cell.into_dispatch(),
        HiddenParameters::new(
            weights.into_iter().map(Tensor::into_dispatch).collect(),
            biases.into_iter().map(Tensor::into_dispatch).collect(),
        ),
        recurrence,
    );
    Tensor::from_dispatch(output)
}
