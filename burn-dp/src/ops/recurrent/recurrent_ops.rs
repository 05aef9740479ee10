use burn::backend::{backend_extension, tensor::FloatTensor};

use super::sequence::Operands;
use super::value::Value;
use super::{FusedOps, GateFunction, GateParameters, Recurrence};

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
pub trait RecurrentOps: FusedOps {
    /// Returns the hidden states of all positions followed, for an LSTM, by the last cell:
    /// `[positions (+ 1), batch_size, d_hidden]`.
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
        Operands::<Self>::new([input, hidden, cell], parameters, &recurrence).forward(&recurrence).0
    }

    /// Applies a gate function to every value.
    #[fusion(default)]
    fn activation(input: FloatTensor<Self>, function: GateFunction) -> FloatTensor<Self> {
        function.apply::<Self>(Value(input)).0
    }
}
