use burn::backend::{backend_extension, tensor::FloatTensor};

use super::recurrent::{Operands, Value};
use super::{FusedOps, GateFunction, GateParameters, Recurrence, Windows, max_pool, rows};

/// The layers of a backend that have backward steps of their own: recurrent layers, softmax and
/// normalization over the last axis, and max pooling.
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
pub trait LayerOps: FusedOps {
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

    /// Returns the softmax over the last axis.
    #[fusion(default)]
    fn row_softmax(input: FloatTensor<Self>) -> FloatTensor<Self> {
        rows::softmax::<Self>(input)
    }

    /// Returns the gradient of the input of [`row_softmax`](Self::row_softmax) from its output and
    /// the gradient of its output.
    #[fusion(default)]
    fn row_softmax_input_gradient(
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::softmax_input_gradient::<Self>(output, grad)
    }

    /// Returns values with zero mean and unit variance over the last axis, and what they were
    /// scaled by: `1 / √(variance + epsilon)`, whose last axis has length one. The second output
    /// has no gradient.
    #[fusion(default)]
    fn row_normalize(
        input: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rows::normalize::<Self>(input, epsilon)
    }

    /// Returns the gradient of the input of [`row_normalize`](Self::row_normalize) from its outputs
    /// and the gradient of the first one.
    #[fusion(default)]
    fn row_normalize_input_gradient(
        output: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::normalize_input_gradient::<Self>(output, scale, grad)
    }

    /// Returns the largest value of each window.
    ///
    /// - input: `[batch_size, channels, height, width]`
    #[fusion(default)]
    fn window_maxima(input: FloatTensor<Self>, windows: Windows) -> FloatTensor<Self> {
        max_pool::maxima::<Self>(input, windows)
    }

    /// Returns the gradient of the input of [`window_maxima`](Self::window_maxima) from its input
    /// and the gradient of its output.
    #[fusion(default)]
    fn window_maxima_input_gradient(
        input: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        windows: Windows,
    ) -> FloatTensor<Self> {
        max_pool::input_gradient::<Self>(input, grad, windows)
    }
}
