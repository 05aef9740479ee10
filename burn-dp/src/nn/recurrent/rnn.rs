use burn::nn::{BiRnn, Rnn, RnnState};
use burn::tensor::Tensor;

use super::super::activation::{activation, gate_function};
use super::super::linear::linear;
use super::super::private::Private;
use super::{both_directions, direction, join_states};
use super::{exchange, gates::Gates, is_empty, last_hidden, zero_state};
use crate::ops::{Cell, RnnCell};

impl Private<Rnn> {
    /// Applies the layer to a sequence.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`; `[positions, batch_size, d_input]` without
    ///   `batch_first`
    /// - state: `[batch_size, d_hidden]`, zeros by default
    /// - output: `[batch_size, positions, d_hidden]`, in the layout of the input, and the last
    ///   state
    ///
    /// # Panics
    ///
    /// Panics if the input does not have `d_input` features.
    pub fn forward(
        &self,
        input: Tensor<3>,
        state: Option<RnnState<2>>,
    ) -> (Tensor<3>, RnnState<2>) {
        forward(&self.inner, input, state)
    }
}

impl Private<BiRnn> {
    /// Applies the layer to a sequence, in both directions.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`, or `[positions, batch_size, d_input]` without
    ///   `batch_first`
    /// - state: `[2, batch_size, d_hidden]`, forward then reverse, zeros
    ///   by default
    /// - output: `[batch_size, positions, 2 · d_hidden]`, in the layout of the input, and the last
    ///   states
    ///
    /// # Panics
    ///
    /// Panics if the input does not have `d_input` features.
    pub fn forward(
        &self,
        input: Tensor<3>,
        state: Option<RnnState<3>>,
    ) -> (Tensor<3>, RnnState<3>) {
        let layer = &self.inner;
        let state =
            |index| state.as_ref().map(|state| RnnState::new(direction(&state.hidden, index)));
        let (output, [last, first]) =
            both_directions(layer.batch_first, input, |input, reverse| match reverse {
                false => forward(&layer.forward, input, state(0)),
                true => sequence(&layer.reverse, input, state(1), true),
            });
        (output, RnnState::new(join_states(last.hidden, first.hidden)))
    }
}

fn forward(layer: &Rnn, input: Tensor<3>, state: Option<RnnState<2>>) -> (Tensor<3>, RnnState<2>) {
    let input = exchange(layer.batch_first, input);
    let (output, state) = sequence(layer, input, state, layer.reverse);
    (exchange(layer.batch_first, output), state)
}

/// Applies the layer to `[batch_size, positions, d_input]`, ignoring its own layout and direction.
fn sequence(
    layer: &Rnn,
    input: Tensor<3>,
    state: Option<RnnState<2>>,
    reverse: bool,
) -> (Tensor<3>, RnnState<2>) {
    let gates = Gates::new([&layer.gate]);
    let hidden = match state {
        Some(state) => state.hidden,
        None => zero_state(&input, layer.d_hidden),
    };
    match gate_function(&layer.hidden_activation) {
        Some(function) if !is_empty(&input) => {
            let cell = Cell::Rnn(RnnCell { activation: function, clip: layer.clip });
            let (output, _) = gates.sequence(input, [hidden.clone(), hidden], cell, reverse);
            let hidden = last_hidden(&output, reverse);
            (output, RnnState::new(hidden))
        }
        _ => {
            let step = |projected: &[Tensor<2>], hidden: Tensor<2>| {
                let sum = projected[0].clone() + linear(gates.hidden(0), hidden);
                let hidden = activation(&layer.hidden_activation, sum);
                let hidden = match layer.clip {
                    Some(bound) => hidden.clamp(-bound, bound),
                    None => hidden,
                };
                (hidden.clone(), hidden)
            };
            let (output, hidden) = gates.unroll(input, reverse, hidden, step);
            (output, RnnState::new(hidden))
        }
    }
}
