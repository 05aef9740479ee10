//! Recurrent layers.
//!
//! A sequence is one [recurrent primitive](crate::ops): one matrix product projects the input of all
//! positions for all gates, and one a position the hidden state. Gates whose activation is none of identity,
//! ReLU, sigmoid and tanh are taken step by step instead, with the same result.

mod bigru;
mod bilstm;
mod birnn;
mod gates;
mod gru;
mod lstm;
mod rnn;

use burn::tensor::Tensor;

/// Exchanges batch and sequence where a layer has the sequence first.
fn exchange(batch_first: bool, tensor: Tensor<3>) -> Tensor<3> {
    if batch_first { tensor } else { tensor.swap_dims(0, 1) }
}

/// Zeros before the first position, for every example of `input`, `[batch_size, …]`.
fn zero_state(input: &Tensor<3>, d_hidden: usize) -> Tensor<2> {
    Tensor::zeros([input.dims()[0], d_hidden], (&input.device(), input.dtype()))
}

/// The state of one direction out of `[2, batch_size, d_hidden]`.
fn direction(state: &Tensor<3>, index: usize) -> Tensor<2> {
    let [_, batch_size, d_hidden] = state.dims();
    if batch_size == 0 {
        return Tensor::zeros([0, d_hidden], (&state.device(), state.dtype()));
    }
    state.clone().narrow(0, index, 1).squeeze_dim(0)
}

/// The states of both directions, `[2, batch_size, d_hidden]`.
fn both_directions(forward: Tensor<2>, reverse: Tensor<2>) -> Tensor<3> {
    let [batch_size, d_hidden] = forward.dims();
    if batch_size == 0 {
        // Burn reads a zero in a new shape as an axis that stays as it is.
        return Tensor::zeros([2, 0, d_hidden], (&forward.device(), forward.dtype()));
    }
    Tensor::stack(vec![forward, reverse], 0)
}

/// Whether there is nothing to compute: no example or no position.
fn is_empty(input: &Tensor<3>) -> bool {
    let [batch_size, positions, _] = input.dims();
    batch_size == 0 || positions == 0
}

/// The last hidden state that was computed, out of `[batch_size, positions, d_hidden]`.
fn last_hidden(hidden: &Tensor<3>, reverse: bool) -> Tensor<2> {
    let [_, positions, _] = hidden.dims();
    let last = if reverse { 0 } else { positions - 1 };
    hidden.clone().narrow(1, last, 1).squeeze_dim(1)
}
