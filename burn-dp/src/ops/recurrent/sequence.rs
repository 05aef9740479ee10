//! The forward and the backward pass of a cell over all positions of a sequence.

use burn::backend::{Backend, tensor::FloatTensor};

use super::cell::Step;
use super::gate_layers::GateLayers;
use super::gate_parameters::GATES;
use super::state::State;
use super::uses::{LayerOf, Products, Use};
use super::value::Value;
use super::{FusedOps, Recurrence};

/// The tensors of a recurrent layer.
pub(super) struct Operands<B: Backend> {
    /// `[batch_size, positions, d_input]`.
    input: Value<B>,
    state: State<B>,
    of_input: GateLayers<B>,
    of_hidden: GateLayers<B>,
}

/// Weights and biases of all gates.
type Parameters<B> = ([FloatTensor<B>; GATES], [FloatTensor<B>; GATES]);

/// What the forward pass keeps for the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Trace<B: Backend> {
    of_input: Value<B>,
    of_hidden: Value<B>,
    /// In the order in which the cell visited the positions.
    steps: Vec<Step<B>>,
}

/// Gradients of input and state, and the factors of the gradients of weights and biases.
pub(super) struct OperandGrads<B: Backend> {
    /// Gradients of the projection of the input.
    pub(super) projected: Products<B>,
    /// Gradients of the product with the hidden state, where they differ from `projected`.
    pub(super) product: Option<Products<B>>,
    pub(super) state: State<B>,
    /// The layers of the hidden state.
    pub(super) uses: Vec<Use<B>>,
    of_input: Value<B>,
}

impl<B: FusedOps> Operands<B> {
    /// Takes input, hidden state and cell; and the parameters of the layers of the input and of the
    /// hidden state.
    pub(super) fn new(
        tensors: [FloatTensor<B>; 3],
        parameters: [Parameters<B>; 2],
        recurrence: &Recurrence,
    ) -> Self {
        let [input, hidden, cell] = tensors.map(Value::<B>);
        let side_by_side = |parts: [FloatTensor<B>; GATES], dim| {
            let gates = parts.into_iter().take(recurrence.gates.len());
            Value::cat(gates.map(Value).collect(), dim)
        };
        let [of_input, of_hidden] = parameters.map(|(weights, biases)| {
            let bias = side_by_side(biases, 0);
            let [features] = bias.dims();
            GateLayers { weight: side_by_side(weights, 1), bias: bias.reshape([1, features]) }
        });
        Self { input, state: State { hidden, cell }, of_input, of_hidden }
    }

    /// Returns the hidden states followed, for an LSTM, by the last cell; and the trace.
    pub(super) fn forward(self, recurrence: &Recurrence) -> (FloatTensor<B>, Trace<B>) {
        let Self { input, mut state, of_input, of_hidden } = self;
        let [_, positions, _] = input.dims::<3>();
        let projected = of_input.project(input);
        let (mut hidden, mut steps) = (Vec::new(), Vec::new());
        for index in 0..positions {
            let t = recurrence.position(index, positions);
            let (next, step) = recurrence.cell.step(projected.position(t), state, &of_hidden);
            hidden.push(next.hidden.clone());
            steps.push(step);
            state = next;
        }
        if recurrence.reverse {
            hidden.reverse();
        }
        if recurrence.cell.has_cell() {
            hidden.push(state.cell);
        }
        let trace = Trace { of_input: of_input.weight, of_hidden: of_hidden.weight, steps };
        (Value::stack(hidden).0, trace)
    }
}

impl<B: Backend> OperandGrads<B> {
    /// Returns the gradient of the input, `[batch_size, positions, d_input]`.
    pub(super) fn input(&self) -> Value<B> {
        let grad = self.projected.all();
        let [positions, batch_size, features] = grad.dims();
        let [d_input, _] = self.of_input.dims();
        grad.reshape([positions * batch_size, features])
            .matmul(self.of_input.clone().swap_dims(0, 1))
            .reshape([positions, batch_size, d_input])
            .swap_dims(0, 1)
    }
}

impl<B: FusedOps> Trace<B> {
    /// Computes the gradients by backpropagation through time.
    pub(super) fn backward(
        self,
        output_grad: FloatTensor<B>,
        recurrence: &Recurrence,
    ) -> OperandGrads<B> {
        let output_grad = Value::<B>(output_grad);
        let positions = self.steps.len();
        let ranges = recurrence.cell.uses(recurrence.gates.len());
        let mut inputs: Vec<Vec<Value<B>>> = ranges.iter().map(|_| Vec::new()).collect();
        let (mut projected, mut products) = (Vec::new(), Vec::new());

        let last = output_grad.position(recurrence.position(positions - 1, positions));
        let cell = match recurrence.cell.has_cell() {
            true => output_grad.position(positions),
            false => last.zeros_like(),
        };
        let mut state = State { hidden: last.zeros_like(), cell };
        for (index, step) in self.steps.into_iter().enumerate().rev() {
            let t = recurrence.position(index, positions);
            state.hidden = state.hidden + output_grad.position(t);
            let grads = recurrence.cell.step_backward(step, state, &self.of_hidden);
            projected.push(grads.projected);
            products.extend(grads.product);
            inputs.iter_mut().zip(grads.inputs).for_each(|(inputs, input)| inputs.push(input));
            state = grads.carried;
        }

        // The backward pass visits the last position first; bring all sequences into the input's
        // order.
        let in_order = |mut values: Vec<Value<B>>| {
            if !recurrence.reverse {
                values.reverse();
            }
            Value::stack(values)
        };
        let projected = Products::new(in_order(projected));
        let product = (!products.is_empty()).then(|| Products::new(in_order(products)));
        let uses = ranges
            .into_iter()
            .zip(inputs)
            .map(|(gates, inputs)| Use { layer: LayerOf::Hidden, gates, input: in_order(inputs) })
            .collect();
        OperandGrads { projected, product, state, uses, of_input: self.of_input }
    }
}

impl Recurrence {
    /// Returns the position that the cell visits as number `index`.
    fn position(&self, index: usize, positions: usize) -> usize {
        if self.reverse { positions - 1 - index } else { index }
    }
}
