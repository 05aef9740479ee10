use burn::nn::{BiGru, Gru};
use burn::tensor::Tensor;

use super::super::activation::{activation, gate_function};
use super::super::linear::linear;
use super::super::private::Private;
use super::{both_directions, direction, join_states};
use super::{gates::Gates, is_empty, last_hidden, zero_state};
use crate::ops::{Cell, GruCell};

impl Private<Gru> {
    /// Applies the layer to a sequence.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`
    /// - state: `[batch_size, d_hidden]`, zeros by default
    /// - output: `[batch_size, positions, d_hidden]`
    ///
    /// # Panics
    ///
    /// Panics if the input does not have `d_input` features.
    pub fn forward(&self, input: Tensor<3>, state: Option<Tensor<2>>) -> Tensor<3> {
        sequence(&self.inner, input, state, false).0
    }
}

impl Private<BiGru> {
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
    pub fn forward(&self, input: Tensor<3>, state: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        let layer = &self.inner;
        let state = |index| state.as_ref().map(|state| direction(state, index));
        let (output, [last, first]) =
            both_directions(layer.batch_first, input, |input, reverse| match reverse {
                false => sequence(&layer.forward, input, state(0), false),
                true => sequence(&layer.reverse, input, state(1), true),
            });
        (output, join_states(last, first))
    }
}

/// Applies the layer in either direction. Returns the hidden states and the last of them.
fn sequence(
    layer: &Gru,
    input: Tensor<3>,
    state: Option<Tensor<2>>,
    reverse: bool,
) -> (Tensor<3>, Tensor<2>) {
    let gates = Gates::new([&layer.update_gate, &layer.reset_gate, &layer.new_gate]);
    let hidden = state.unwrap_or_else(|| zero_state(&input, layer.d_hidden));
    match cell(layer) {
        Some(cell) if !is_empty(&input) => {
            let (output, _) = gates.sequence(input, [hidden.clone(), hidden], cell, reverse);
            let hidden = last_hidden(&output, reverse);
            (output, hidden)
        }
        _ => gates.unroll(input, reverse, hidden, |projected, hidden| {
            let hidden = step(layer, &gates, projected, hidden);
            (hidden.clone(), hidden)
        }),
    }
}

fn cell(layer: &Gru) -> Option<Cell> {
    Some(Cell::Gru(GruCell {
        reset_after: layer.reset_after,
        gates: gate_function(&layer.gate_activation)?,
        candidate: gate_function(&layer.hidden_activation)?,
        clip: layer.clip,
    }))
}

fn step(layer: &Gru, gates: &Gates, projected: &[Tensor<2>], hidden: Tensor<2>) -> Tensor<2> {
    let product = |index: usize, hidden: Tensor<2>| linear(gates.hidden(index), hidden);
    let gate = |index: usize| {
        let sum = projected[index].clone() + product(index, hidden.clone());
        activation(&layer.gate_activation, sum)
    };
    let (update, reset) = (gate(0), gate(1));
    let candidate = match layer.reset_after {
        true => reset * product(2, hidden.clone()),
        false => product(2, hidden.clone() * reset),
    };
    let candidate = activation(&layer.hidden_activation, projected[2].clone() + candidate);
    let hidden = candidate * update.clone().neg().add_scalar(1.0) + update * hidden;
    match layer.clip {
        Some(bound) => hidden.clamp(-bound, bound),
        None => hidden,
    }
}
