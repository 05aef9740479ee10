//! Recurrent layers: one primitive for a whole sequence, with a hand-written backward pass through
//! time.
//!
//! The gates lie side by side: one matrix product projects the input of all positions for all of them,
//! and one a position the hidden state. Under a recording the primitive hands over, for each of the two
//! linear layers of every gate, one contribution for the whole sequence: what the layer saw and the
//! gradients of its product, as a linear layer with the sequence as positions.
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
mod gate_parameters;
mod gru;
mod lstm;
mod rnn;
mod sequence;
mod uses;
mod value;

use burn::backend::{Backend, backend_extension, tensor::FloatTensor};

use super::LayerIds;
pub use cell::Cell;
pub(crate) use functions::recurrent;
pub use gate_function::GateFunction;
pub use gate_parameters::GateParameters;

/// A recurrent layer, without its tensors.
#[derive(Clone, Debug)]
pub struct Recurrence {
    pub(crate) cell: Cell,
    /// From the last position to the first.
    pub(crate) reverse: bool,
    /// The linear layers of the gates, in the order of the cell.
    pub(crate) gates: Vec<GateIds>,
    /// Whether a weight that sees the input is trained, so that the input is kept.
    pub(crate) keeps_input: bool,
}

/// The two linear layers of a gate.
#[derive(Clone, Copy, Debug)]
pub struct GateIds {
    pub(crate) input: LayerIds,
    pub(crate) hidden: LayerIds,
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
    Remote: cfg(feature = "remote"),
)]
pub trait RecurrentOps: Backend {
    /// Hidden states of all positions and, of an LSTM, the last cell behind them: `[positions (+ 1),
    /// batch_size, d_hidden]`.
    ///
    /// - input: `[batch_size, positions, d_input]`, at least one of each
    /// - hidden, cell: the state before the first position, `[batch_size, d_hidden]`
    #[fusion(default)]
    fn parametric_recurrent(
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        cell: FloatTensor<Self>,
        #[extension_type] of_input: GateParameters<Self>,
        #[extension_type] of_hidden: GateParameters<Self>,
        recurrence: Recurrence,
    ) -> FloatTensor<Self> {
        let parameters = [of_input.into_parts(), of_hidden.into_parts()];
        sequence::Operands::<Self>::new([input, hidden, cell], parameters, &recurrence)
            .forward(&recurrence)
            .0
    }
}
