use burn::nn::{BiLstm, LstmState};
use burn::tensor::Tensor;

use super::super::private::Private;
use super::{both_directions, direction, exchange, lstm};

impl Private<BiLstm> {
    /// Applies the layer to a sequence, in both directions.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`; `[positions, batch_size, d_input]` without
    ///   `batch_first`
    /// - state: cell and hidden state, `[2, batch_size, d_hidden]` each, forward then reverse,
    ///   zeros by default
    /// - output: `[batch_size, positions, 2 · d_hidden]`, in the layout of the input, and the last
    ///   states
    ///
    /// # Panics
    ///
    /// Panics if the input does not have `d_input` features, or if a layer has neither a forget
    /// gate nor coupled gates.
    pub fn forward(
        &self,
        input: Tensor<3>,
        state: Option<LstmState<3>>,
    ) -> (Tensor<3>, LstmState<3>) {
        let layer = &self.inner;
        let input = exchange(layer.batch_first, input);
        let state = |index| {
            state.as_ref().map(|state| {
                LstmState::new(direction(&state.cell, index), direction(&state.hidden, index))
            })
        };
        let (output, last) = lstm::forward(&layer.forward, input.clone(), state(0));
        let (reverse, first) = lstm::sequence(&layer.reverse, input, state(1), true);
        let output = Tensor::cat(vec![output, reverse], 2);
        let state = LstmState::new(
            both_directions(last.cell, first.cell),
            both_directions(last.hidden, first.hidden),
        );
        (exchange(layer.batch_first, output), state)
    }
}
