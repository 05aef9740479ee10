use burn::nn::{BiLstm, Lstm, LstmState};
use burn::tensor::Tensor;

use super::super::activation::{activation, gate_function};
use super::super::linear::linear;
use super::super::private::Private;
use super::{both_directions, direction, join_states};
use super::{exchange, gates::Gates, is_empty, last_hidden, zero_state};
use crate::ops::{Cell, LstmCell};

impl Private<Lstm> {
    /// Applies the layer to a sequence.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`; `[positions, batch_size, d_input]` without
    ///   `batch_first`
    /// - state: cell and hidden state, `[batch_size, d_hidden]` each, zeros by default
    /// - output: `[batch_size, positions, d_hidden]`, in the layout of the input, and the last
    ///   state
    ///
    /// # Panics
    ///
    /// Panics if the input does not have `d_input` features, or if the layer has neither a forget
    /// gate nor coupled gates.
    pub fn forward(
        &self,
        input: Tensor<3>,
        state: Option<LstmState<2>>,
    ) -> (Tensor<3>, LstmState<2>) {
        forward(&self.inner, input, state)
    }
}

impl Private<BiLstm> {
    /// Applies the layer to a sequence, in both directions.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`, or `[positions, batch_size, d_input]` without
    ///   `batch_first`
    /// - state: cell and hidden state, `[2, batch_size, d_hidden]` each, forward then reverse,
    ///   zeros by default
    /// - output: `[batch_size, positions, 2 · d_hidden]`, in the layout of the input, and the last
    ///   states
    ///
    /// # Panics
    ///
    /// Panics if the input does not have `d_input` features, or if a layer has
    /// neither a forget gate nor coupled gates.
    pub fn forward(
        &self,
        input: Tensor<3>,
        state: Option<LstmState<3>>,
    ) -> (Tensor<3>, LstmState<3>) {
        let layer = &self.inner;
        let state = |index| {
            state.as_ref().map(|state| {
                LstmState::new(direction(&state.cell, index), direction(&state.hidden, index))
            })
        };
        let (output, [last, first]) =
            both_directions(layer.batch_first, input, |input, reverse| match reverse {
                false => forward(&layer.forward, input, state(0)),
                true => sequence(&layer.reverse, input, state(1), true),
            });
        let cell = join_states(last.cell, first.cell);
        (output, LstmState::new(cell, join_states(last.hidden, first.hidden)))
    }
}

fn forward(
    layer: &Lstm,
    input: Tensor<3>,
    state: Option<LstmState<2>>,
) -> (Tensor<3>, LstmState<2>) {
    let input = exchange(layer.batch_first, input);
    let (output, state) = sequence(layer, input, state, layer.reverse);
    (exchange(layer.batch_first, output), state)
}

/// Applies the layer to `[batch_size, positions, d_input]`, ignoring its own layout and direction.
fn sequence(
    layer: &Lstm,
    input: Tensor<3>,
    state: Option<LstmState<2>>,
    reverse: bool,
) -> (Tensor<3>, LstmState<2>) {
    let state = state.unwrap_or_else(|| {
        let zeros = zero_state(&input, layer.d_hidden);
        LstmState::new(zeros.clone(), zeros)
    });
    match cell(layer) {
        Some(cell) if !is_empty(&input) => {
            let state = [state.hidden, state.cell];
            let (output, last_cell) = gates(layer).sequence(input, state, cell, reverse);
            let hidden = last_hidden(&output, reverse);
            let cell = last_cell.expect("an LSTM has a cell");
            (output, LstmState::new(cell, hidden))
        }
        _ => by_step(layer, input, state, reverse),
    }
}

/// Returns the gates in the order of the cell: input, forget (unless coupled), output, candidate.
fn gates(layer: &Lstm) -> Gates<'_> {
    let forget = match layer.input_forget {
        true => None,
        false => {
            let gate = layer.forget_gate.as_ref();
            Some(gate.expect("an LSTM whose gates are not coupled has a forget gate"))
        }
    };
    let last = [&layer.output_gate, &layer.cell_gate];
    Gates::new([&layer.input_gate].into_iter().chain(forget).chain(last))
}

fn cell(layer: &Lstm) -> Option<Cell> {
    Some(Cell::Lstm(LstmCell {
        coupled: layer.input_forget,
        gates: gate_function(&layer.gate_activation)?,
        candidate: gate_function(&layer.cell_activation)?,
        hidden: gate_function(&layer.hidden_activation)?,
        clip: layer.clip,
    }))
}

fn by_step(
    layer: &Lstm,
    input: Tensor<3>,
    state: LstmState<2>,
    reverse: bool,
) -> (Tensor<3>, LstmState<2>) {
    let gates = gates(layer);
    let step = |projected: &[Tensor<2>], state: LstmState<2>| {
        let LstmState { cell, hidden } = state;
        let sum =
            |index: usize| projected[index].clone() + linear(gates.hidden(index), hidden.clone());
        let gate = |index: usize| activation(&layer.gate_activation, sum(index));
        let last = projected.len() - 1;
        let input = gate(0);
        let forget = match layer.input_forget {
            true => input.clone().neg().add_scalar(1.0),
            false => gate(1),
        };
        let output = gate(last - 1);
        let candidate = activation(&layer.cell_activation, sum(last));

        let cell = forget * cell + input * candidate;
        let cell = match layer.clip {
            Some(bound) => cell.clamp(-bound, bound),
            None => cell,
        };
        let hidden = output * activation(&layer.hidden_activation, cell.clone());
        (hidden.clone(), LstmState::new(cell, hidden))
    };
    gates.unroll(input, reverse, state, step)
}
