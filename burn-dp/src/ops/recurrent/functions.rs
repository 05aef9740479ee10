use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::{Recurrence, RecurrentOps};

/// A recurrent layer over projected inputs.
///
/// # Shapes
///
/// - projected: `[positions, batch_size, gates · d_hidden]`, at least one position
/// - state: hidden state and cell, `[batch_size, d_hidden]` each; only an LSTM looks at the cell
/// - weight: `[d_hidden, gates · d_hidden]`
/// - bias: `[gates · d_hidden]`
/// - output: the hidden states and, of an LSTM, the last cell behind them, `[positions (+ 1),
///   batch_size, d_hidden]`
pub(crate) fn recurrent(
    projected: Tensor<3>,
    state: [Tensor<2>; 2],
    weight: Tensor<2>,
    bias: Tensor<1>,
    recurrence: Recurrence,
) -> Tensor<3> {
    let [hidden, cell] = state;
    let output = Dispatch::parametric_recurrent(
        projected.into_dispatch(),
        hidden.into_dispatch(),
        cell.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
        recurrence,
    );
    Tensor::from_dispatch(output)
}
