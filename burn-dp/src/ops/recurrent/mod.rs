//! Recurrent layers: one primitive for a whole sequence, with a hand-written backward pass through
//! time.
//!
//! Its input is the projection of all positions, made by one linear primitive a gate. Its parameters
//! are the weights and biases that see the hidden state, the gates side by side. Under a recording it
//! hands over, for every gate, one contribution for the whole sequence: the hidden states that the gate
//! saw and the gradients of its product, as a linear layer with the sequence as positions.
//!
//! # References
//!
//! Lee and Kifer, Scaling up differentially private deep learning with fast per-example gradient
//! clipping, 2021, section 5 (recurrent layers and LSTM).

mod autodiff;
mod backends;
mod cell;
mod functions;
mod gate_function;
mod gru;
mod lstm;
mod parameters;
mod rnn;
mod sequence;
mod value;

use burn::backend::{Backend, backend_extension, tensor::FloatTensor};

use super::LayerIds;
pub use cell::Cell;
pub(crate) use functions::recurrent;
pub use gate_function::GateFunction;
pub use parameters::HiddenParameters;

/// A recurrent layer, without its tensors.
#[derive(Clone, Debug)]
pub struct Recurrence {
    pub(crate) cell: Cell,
    /// From the last position to the first.
    pub(crate) reverse: bool,
    /// The linear layers that see the hidden state, in the order of the cell.
    pub(crate) gates: Vec<LayerIds>,
}

/// The recurrent primitive of a backend.
///
/// An implementation detail that is public because Burn's dispatch needs it to be.
#[doc(hidden)]
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Autodiff,
    Fusion: cfg(feature = "fusion"),
)]
pub trait RecurrentOps: Backend {
    /// Hidden states of all positions and, of an LSTM, the last cell behind them: `[positions (+ 1),
    /// batch_size, d_hidden]`.
    ///
    /// - projected: projections of the input, `[positions, batch_size, gates · d_hidden]`
    /// - hidden, cell: the state before the first position, `[batch_size, d_hidden]`
    #[fusion(default)]
    fn parametric_recurrent(
        projected: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        cell: FloatTensor<Self>,
        #[extension_type] parameters: HiddenParameters<Self>,
        recurrence: Recurrence,
    ) -> FloatTensor<Self> {
        let (weights, biases) = parameters.into_parts();
        sequence::Operands::<Self>::new([projected, hidden, cell], weights, biases, &recurrence)
            .forward(&recurrence)
            .0
    }
}
