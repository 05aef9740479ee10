//! A cell over all positions of a sequence, and back.

use std::ops::Range;

use burn::backend::{Backend, tensor::FloatTensor};

use super::Recurrence;
use super::cell::{HiddenLayer, State, Step};
use super::parameters::GATES;
use super::value::Value;

/// The tensors of a recurrent layer.
pub(super) struct Operands<B: Backend> {
    projected: Value<B>,
    state: State<B>,
    layer: HiddenLayer<B>,
}

/// What the forward pass leaves for the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Trace<B: Backend> {
    weight: Value<B>,
    /// In the order in which the positions were seen.
    steps: Vec<Step<B>>,
}

/// Gates that saw the same input, at all positions.
pub(super) struct HiddenUse<B: Backend> {
    pub(super) gates: Range<usize>,
    /// `[positions, batch_size, d_hidden]`.
    pub(super) input: Value<B>,
    /// Of the product with the weights of all gates, `[positions, batch_size, gates · d_hidden]`.
    pub(super) output_grad: Value<B>,
}

/// Gradients of the operands; those of weight and bias follow from the uses.
pub(super) struct OperandGrads<B: Backend> {
    pub(super) projected: Value<B>,
    pub(super) state: State<B>,
    pub(super) uses: Vec<HiddenUse<B>>,
}

impl<B: Backend> Operands<B> {
    /// Projected input, hidden state and cell; weights and biases of all gates.
    pub(super) fn new(
        tensors: [FloatTensor<B>; 3],
        weights: [FloatTensor<B>; GATES],
        biases: [FloatTensor<B>; GATES],
        recurrence: &Recurrence,
    ) -> Self {
        let [projected, hidden, cell] = tensors.map(Value::<B>);
        let side_by_side = |parts: [FloatTensor<B>; GATES], dim| {
            let gates = parts.into_iter().take(recurrence.gates.len());
            Value::cat(gates.map(Value).collect(), dim)
        };
        let bias = side_by_side(biases, 0);
        let [features] = bias.dims();
        Self {
            projected,
            state: State { hidden, cell },
            layer: HiddenLayer {
                weight: side_by_side(weights, 1),
                bias: bias.reshape([1, features]),
            },
        }
    }

    /// The hidden states and, where there is one, the last cell behind them.
    pub(super) fn forward(self, recurrence: &Recurrence) -> (FloatTensor<B>, Trace<B>) {
        let Self { projected, mut state, layer } = self;
        let [positions, ..] = projected.dims::<3>();
        let (mut hidden, mut steps) = (Vec::new(), Vec::new());
        for index in 0..positions {
            let t = recurrence.position(index, positions);
            let (next, step) = recurrence.cell.step(projected.position(t), state, &layer);
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
        (Value::stack(hidden).0, Trace { weight: layer.weight, steps })
    }
}

impl<B: Backend> Trace<B> {
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
            let grads = recurrence.cell.step_backward(step, state, &self.weight);
            projected.push(grads.projected);
            products.extend(grads.product);
            inputs.iter_mut().zip(grads.inputs).for_each(|(inputs, input)| inputs.push(input));
            state = grads.carried;
        }

        // The last position was seen first; all sequences get the order of the input.
        let in_order = |mut values: Vec<Value<B>>| {
            if !recurrence.reverse {
                values.reverse();
            }
            Value::stack(values)
        };
        let projected = in_order(projected);
        let products = if products.is_empty() { projected.clone() } else { in_order(products) };
        let uses = ranges
            .into_iter()
            .zip(inputs)
            .map(|(gates, inputs)| HiddenUse {
                gates,
                input: in_order(inputs),
                output_grad: products.clone(),
            })
            .collect();
        OperandGrads { projected, state, uses }
    }
}

impl Recurrence {
    /// The position that is seen as number `index`.
    fn position(&self, index: usize, positions: usize) -> usize {
        if self.reverse { positions - 1 - index } else { index }
    }
}
