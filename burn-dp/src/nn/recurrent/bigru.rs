use burn::nn::BiGru;
use burn::tensor::Tensor;

use super::super::private::Private;
use super::{both_directions, direction, exchange, gru};

impl Private<BiGru> {
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
    pub fn forward(&self, input: Tensor<3>, state: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        let layer = &self.inner;
        let input = exchange(layer.batch_first, input);
        let state = |index| state.as_ref().map(|state| direction(state, index));
        let (output, last) = gru::sequence(&layer.forward, input.clone(), state(0), false);
        let (reverse, first) = gru::sequence(&layer.reverse, input, state(1), true);
        let output = Tensor::cat(vec![output, reverse], 2);
        (exchange(layer.batch_first, output), both_directions(last, first))
    }
}
