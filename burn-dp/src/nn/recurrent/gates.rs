use burn::nn::{GateController, Linear};
use burn::tensor::Tensor;

use super::super::linear::linear;
use super::super::private::Private;
use super::is_empty;
use crate::ops::{self, Cell, GateIds, LayerIds, Recurrence};

impl Private<GateController> {
    /// Returns the sum of the two linear layers of a gate.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, d_input]`
    /// - hidden: `[batch_size, d_hidden]`
    /// - output: `[batch_size, d_hidden]`
    pub fn gate_product(&self, input: Tensor<2>, hidden: Tensor<2>) -> Tensor<2> {
        linear(&self.inner.input_transform, input) + linear(&self.inner.hidden_transform, hidden)
    }
}

/// The gates of a recurrent layer, in the order of its [`Cell`].
pub(super) struct Gates<'a> {
    gates: Vec<&'a GateController>,
}

impl<'a> Gates<'a> {
    pub(super) fn new(gates: impl IntoIterator<Item = &'a GateController>) -> Self {
        Self { gates: gates.into_iter().collect() }
    }

    /// Returns the linear layer of gate `index` that projects the hidden state.
    pub(super) fn hidden(&self, index: usize) -> &'a Linear {
        &self.gates[index].hidden_transform
    }

    /// Runs `cell` over the whole sequence in one primitive.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, positions, d_input]`, at least one position
    /// - state: hidden state and cell state, `[batch_size, d_hidden]` each
    /// - output: hidden states, `[batch_size, positions, d_hidden]`, and the last cell state of an
    ///   LSTM
    pub(super) fn sequence(
        &self,
        input: Tensor<3>,
        state: [Tensor<2>; 2],
        cell: Cell,
        reverse: bool,
    ) -> (Tensor<3>, Option<Tensor<2>>) {
        let [_, positions, d_input] = input.dims();
        let of_input = parameters(self.gates.iter().map(|gate| &gate.input_transform));
        let of_hidden = parameters(self.gates.iter().map(|gate| &gate.hidden_transform));
        let [expected, _] = of_input.0[0].dims();
        assert_eq!(d_input, expected, "the input has {d_input} features, the layer {expected}");
        let recurrence = Recurrence {
            cell,
            reverse,
            gates: self.gates.iter().map(|gate| ids(gate)).collect(),
            keeps_input: of_input.0.iter().any(Tensor::is_tracked),
        };
        let output = ops::recurrent(input, state, of_input, of_hidden, recurrence);
        let rows = output.dims()[0];
        let hidden = output.clone().narrow(0, 0, positions).swap_dims(0, 1);
        let cell = (rows > positions).then(|| output.narrow(0, positions, 1).squeeze_dim(0));
        (hidden, cell)
    }

    /// Runs `step` position by position. It maps the projections of all gates and the state to the
    /// hidden state and the next state.
    pub(super) fn unroll<S>(
        &self,
        input: Tensor<3>,
        reverse: bool,
        mut state: S,
        step: impl Fn(&[Tensor<2>], S) -> (Tensor<2>, S),
    ) -> (Tensor<3>, S) {
        let [batch_size, positions, _] = input.dims();
        let [size, _] = self.hidden(0).weight.shape().dims();
        if is_empty(&input) {
            let options = (&input.device(), input.dtype());
            return (Tensor::zeros([batch_size, positions, size], options), state);
        }
        let projected = self.projections(input);
        let mut outputs = Vec::with_capacity(positions);
        for index in 0..positions {
            let t = if reverse { positions - 1 - index } else { index };
            let at: Vec<Tensor<2>> =
                projected.iter().map(|gate| gate.clone().narrow(1, t, 1).squeeze_dim(1)).collect();
            let (hidden, next) = step(&at, state);
            outputs.push(hidden);
            state = next;
        }
        if reverse {
            outputs.reverse();
        }
        (Tensor::stack(outputs, 1), state)
    }

    /// Returns `[batch_size, positions, d_hidden]` for every gate.
    fn projections(&self, input: Tensor<3>) -> Vec<Tensor<3>> {
        self.gates.iter().map(|gate| linear(&gate.input_transform, input.clone())).collect()
    }
}

/// Returns weights and biases of one linear layer of each gate, zeros if there is no bias.
fn parameters<'a>(layers: impl Iterator<Item = &'a Linear>) -> (Vec<Tensor<2>>, Vec<Tensor<1>>) {
    layers
        .map(|layer| {
            let weight = layer.weight.val();
            let bias = match &layer.bias {
                Some(bias) => bias.val(),
                None => Tensor::zeros([weight.dims()[1]], (&weight.device(), weight.dtype())),
            };
            (weight, bias)
        })
        .unzip()
}

fn ids(gate: &GateController) -> GateIds {
    let of = |layer: &Linear| LayerIds {
        weight: layer.weight.id,
        bias: layer.bias.as_ref().map(|bias| bias.id),
    };
    GateIds { input: of(&gate.input_transform), hidden: of(&gate.hidden_transform) }
}
