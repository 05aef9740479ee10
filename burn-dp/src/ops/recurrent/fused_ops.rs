use std::fmt::Debug;
use std::ops::Range;

use burn::backend::{Backend, tensor::FloatTensor};

use super::settings::{GateFunction, GruCell, LstmCell};

/// Kernels of a backend for the gates of one position, and its distribution of a sequence among
/// cores.
///
/// Every kernel returns `None` for what it does not handle; Burn's operations are used then, and
/// they are the oracle of its tests. An implementation detail that is public because
/// [`LayerOps`](crate::ops::LayerOps) is.
#[doc(hidden)]
#[allow(unused_variables)]
pub trait FusedOps: Backend {
    /// The weight of a product in the order in which its kernel reads it.
    type Packed: Debug + Send + Sync;

    /// Packs a matrix for several products.
    fn pack(weight: &FloatTensor<Self>) -> Option<Self::Packed> {
        None
    }

    /// Returns `left @ weight + bias`.
    ///
    /// - left: `[rows, d]`
    /// - bias: `[1, columns]`
    fn product(
        left: &FloatTensor<Self>,
        weight: &Self::Packed,
        bias: Option<&FloatTensor<Self>>,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Applies a gate function.
    fn gate(input: &FloatTensor<Self>, function: GateFunction) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the gradient of the input of [`gate`](Self::gate) from its output and the gradient
    /// of its output.
    fn gate_backward(
        output: &FloatTensor<Self>,
        grad: &FloatTensor<Self>,
        function: GateFunction,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the values of the gates and the candidate, side by side; the cell; its activation;
    /// and the hidden state.
    ///
    /// - projected, product: `[batch_size, gates · d_hidden]`, contributions of the input and of
    ///   the hidden state
    /// - cell: `[batch_size, d_hidden]`
    fn lstm(
        projected: &FloatTensor<Self>,
        product: &FloatTensor<Self>,
        cell: &FloatTensor<Self>,
        lstm: LstmCell,
    ) -> Option<[FloatTensor<Self>; 4]> {
        None
    }

    /// Returns the gradients of the projection and of the previous cell.
    ///
    /// - kept: the values of the gates and the candidate, the previous cell, and the activation of
    ///   the cell
    /// - grads: gradients of the hidden state and of the cell
    fn lstm_backward(
        kept: [&FloatTensor<Self>; 3],
        grads: [&FloatTensor<Self>; 2],
        lstm: LstmCell,
    ) -> Option<[FloatTensor<Self>; 2]> {
        None
    }

    /// Returns the values of the gates and the candidate, side by side; and the hidden state. The
    /// reset gate scales the product.
    ///
    /// - projected, product: `[batch_size, 3 · d_hidden]`
    /// - hidden: `[batch_size, d_hidden]`
    fn gru(
        projected: &FloatTensor<Self>,
        product: &FloatTensor<Self>,
        hidden: &FloatTensor<Self>,
        gru: GruCell,
    ) -> Option<[FloatTensor<Self>; 2]> {
        None
    }

    /// Returns the gradients of the projection, of the product, and the part of the gradient of the
    /// previous hidden state that does not pass through the product.
    ///
    /// - kept: the values of the gates and the candidate, the product, and the previous hidden
    ///   state
    /// - grad: gradient of the hidden state
    fn gru_backward(
        kept: [&FloatTensor<Self>; 3],
        grad: &FloatTensor<Self>,
        gru: GruCell,
    ) -> Option<[FloatTensor<Self>; 3]> {
        None
    }

    /// Returns the number of examples that are computed independently of the others; `None` for all
    /// at once.
    fn examples_apart() -> Option<usize> {
        None
    }

    /// Computes a function of each part of a batch.
    fn map_parts<T: Send, U: Send>(
        parts: Vec<T>,
        function: impl Fn(T) -> U + Send + Sync,
    ) -> Vec<U> {
        parts.into_iter().map(function).collect()
    }

    /// Returns some columns of values that are ordered by position and part of the batch, ordered
    /// by example: `[batch_size, positions, columns]`.
    ///
    /// - values: `[examples of the part, features]` each
    fn by_example(
        values: &[&FloatTensor<Self>],
        positions: usize,
        columns: Range<usize>,
    ) -> Option<FloatTensor<Self>> {
        None
    }
}
