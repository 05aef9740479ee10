use std::ops::Range;

use burn::backend::Backend;

use super::value::Value;

/// The linear layers of all gates that have one input, side by side.
#[derive(Clone, Debug)]
pub(super) struct GateLayers<B: Backend> {
    /// `[d, gates · d_hidden]`.
    pub(super) weight: Value<B>,
    /// `[1, gates · d_hidden]`.
    pub(super) bias: Value<B>,
}

impl<B: Backend> GateLayers<B> {
    /// Returns the product of the hidden state with the gates `range`, plus their bias.
    pub(super) fn forward(&self, hidden: Value<B>, range: Range<usize>) -> Value<B> {
        let [size, features] = self.weight.dims();
        let (start, length) = (range.start * size, range.len() * size);
        if length == features {
            return hidden.matmul(self.weight.clone()) + self.bias.clone();
        }
        hidden.matmul(self.weight.clone().narrow(1, start, length))
            + self.bias.clone().narrow(1, start, length)
    }

    /// Returns the product of the input at all positions with all gates, plus their bias.
    ///
    /// - input: `[batch_size, positions, d_input]`
    /// - output: `[positions, batch_size, gates · d_hidden]`
    pub(super) fn project(&self, input: Value<B>) -> Value<B> {
        let [batch_size, positions, d_input] = input.dims();
        let [_, features] = self.weight.dims();
        let rows = input.swap_dims(0, 1).reshape([positions * batch_size, d_input]);
        (rows.matmul(self.weight.clone()) + self.bias.clone())
            .reshape([positions, batch_size, features])
    }

    /// Returns the gradient of the hidden state from the gradient of its product with the gates
    /// `range`.
    pub(super) fn backward(weight: &Value<B>, grad: Value<B>, range: Range<usize>) -> Value<B> {
        let [size, features] = weight.dims();
        let (start, length) = (range.start * size, range.len() * size);
        let weight = weight.clone();
        let weight = if length == features { weight } else { weight.narrow(1, start, length) };
        grad.matmul(weight.swap_dims(0, 1))
    }
}
