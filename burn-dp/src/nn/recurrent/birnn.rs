use burn::nn::{BiRnn, RnnState};
use burn::tensor::Tensor;

use super::super::private::Private;
use super::{both_directions, direction, exchange, rnn};

impl Private<BiRnn> {
    /// Applies the layer to a sequence, in both directions.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`; `[positions, batch_size, d_input]` without
    ///   `batch_first`
    /// - state: `[2, batch_size, d_hidden]`, forward then reverse, zeros by default
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
        let input = exchange(layer.batch_first, input);
        let state =
            |index| state.as_ref().map(|state| RnnState::new(direction(&state.hidden, index)));
        let (output, last) = rnn::forward(&layer.forward, input.clone(), state(0));
        let (reverse, first) = rnn::sequence(&layer.reverse, input, state(1), true);
        let output = Tensor::cat(vec![output, reverse], 2);
        let state = RnnState::new(both_directions(last.hidden, first.hidden));
        (exchange(layer.batch_first, output), state)
    }
}
