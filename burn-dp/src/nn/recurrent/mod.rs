//! Recurrent layers.
//!
//! A sequence is one [recurrent primitive](crate::ops): one matrix product projects the input of
//! all positions for all gates, and one product per position projects the hidden state. Gates with
//! an activation other than identity, ReLU, sigmoid, or tanh are computed position by position,
//! with the same result.

mod gates;
mod gru;
mod lstm;
mod rnn;

use burn::tensor::Tensor;

/// Swaps the batch and sequence axes if a layer has the sequence first.
fn exchange(batch_first: bool, tensor: Tensor<3>) -> Tensor<3> {
    if batch_first { tensor } else { tensor.swap_dims(0, 1) }
}

/// Returns the zero state for every example of `input`, `[batch_size, …]`.
fn zero_state(input: &Tensor<3>, d_hidden: usize) -> Tensor<2> {
    Tensor::zeros([input.dims()[0], d_hidden], (&input.device(), input.dtype()))
}

/// Returns the state of one direction of `[2, batch_size, d_hidden]`.
fn direction(state: &Tensor<3>, index: usize) -> Tensor<2> {
    let [_, batch_size, d_hidden] = state.dims();
    if batch_size == 0 {
        return Tensor::zeros([0, d_hidden], (&state.device(), state.dtype()));
    }
    state.clone().narrow(0, index, 1).squeeze_dim(0)
}

/// Applies a layer in both directions. `run` takes the input and whether to reverse it, and returns
/// output and last state.
///
/// # Shapes
///
/// - input: `[batch_size, positions, d_input]`, or `[positions, batch_size, d_input]` without
///   `batch_first`
/// - output: `[batch_size, positions, 2 · d_hidden]`, in the layout of the input
fn both_directions<S>(
    batch_first: bool,
    input: Tensor<3>,
    run: impl Fn(Tensor<3>, bool) -> (Tensor<3>, S),
) -> (Tensor<3>, [S; 2]) {
    let input = exchange(batch_first, input);
    let (output, last) = run(input.clone(), false);
    let (reverse, first) = run(input, true);
    let output = Tensor::cat(vec![output, reverse], 2);
    (exchange(batch_first, output), [last, first])
}

/// Joins the states of both directions to `[2, batch_size, d_hidden]`.
fn join_states(forward: Tensor<2>, reverse: Tensor<2>) -> Tensor<3> {
    let [batch_size, d_hidden] = forward.dims();
    if batch_size == 0 {
        // In Burn, a zero in a new shape means an unchanged axis.
        return Tensor::zeros([2, 0, d_hidden], (&forward.device(), forward.dtype()));
    }
    Tensor::stack(vec![forward, reverse], 0)
}

/// Returns whether there is no example or no position.
fn is_empty(input: &Tensor<3>) -> bool {
    let [batch_size, positions, _] = input.dims();
    batch_size == 0 || positions == 0
}

/// Returns the hidden state that was computed last, of `[batch_size, positions, d_hidden]`.
fn last_hidden(hidden: &Tensor<3>, reverse: bool) -> Tensor<2> {
    let [_, positions, _] = hidden.dims();
    let last = if reverse { 0 } else { positions - 1 };
    hidden.clone().narrow(1, last, 1).squeeze_dim(1)
}
