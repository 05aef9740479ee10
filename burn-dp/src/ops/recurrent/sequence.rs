//! The forward and the backward pass of a cell over all positions of a sequence.

use std::ops::Range;

use burn::backend::{Backend, tensor::FloatTensor};

use super::cell::Step;
use super::gate_layers::{GateLayers, Products};
use super::gate_parameters::GATES;
use super::state::State;
use super::uses::{LayerInput, LayerOf, Sequence, Use};
use super::value::Value;
use super::{FusedOps, Recurrence};

/// The tensors of a recurrent layer.
pub(in crate::ops) struct Operands<B: Backend> {
    /// `[batch_size, positions, d_input]`.
    input: Value<B>,
    state: State<B>,
    of_input: GateLayers<B>,
    of_hidden: GateLayers<B>,
}

/// Weights and biases of all gates.
type Parameters<B> = ([FloatTensor<B>; GATES], [FloatTensor<B>; GATES]);

/// The values that the forward pass keeps for the backward pass.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Trace<B: Backend> {
    of_input: Value<B>,
    of_hidden: Value<B>,
    parts: Vec<PartTrace<B>>,
}

/// The steps of a part of the batch, in the order in which the cell visited the positions.
#[derive(Clone, Debug)]
struct PartTrace<B: Backend> {
    examples: Range<usize>,
    steps: Vec<Step<B>>,
}

/// Gradients of input and state, and the factors of the gradients of weights and biases.
pub(super) struct OperandGrads<B: Backend> {
    /// Gradients of the projection of the input.
    pub(super) projected: Sequence<B>,
    /// Gradients of the product with the hidden state, where they differ from `projected`.
    pub(super) product: Option<Sequence<B>>,
    pub(super) state: State<B>,
    /// The layers of the hidden state.
    pub(super) uses: Vec<Use<B>>,
    of_input: Value<B>,
}

/// The gradients of one part of the batch, by position.
struct PartGrads<B: Backend> {
    projected: Vec<Value<B>>,
    product: Vec<Value<B>>,
    state: State<B>,
    /// For each range of gates.
    inputs: Vec<Vec<Value<B>>>,
}

impl<B: FusedOps> Operands<B> {
    /// Takes input, hidden state and cell; and the parameters of the layers of the input and of the
    /// hidden state.
    pub(in crate::ops) fn new(
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
    pub(in crate::ops) fn forward(self, recurrence: &Recurrence) -> (FloatTensor<B>, Trace<B>) {
        let Self { input, state, of_input, of_hidden } = self;
        let [batch_size, positions, _] = input.dims::<3>();
        let layers = of_hidden.products(&recurrence.cell.uses(recurrence.gates.len()));
        let weight = of_input.weight.clone();
        let projected = of_input.project(input);
        let scan = |examples: Range<usize>| {
            let mut state = state.examples(&examples);
            let (mut hidden, mut steps) = (Vec::new(), Vec::new());
            for index in 0..positions {
                let t = recurrence.position(index, positions);
                let projected = projected.position(t).examples(&examples);
                let (next, step) = recurrence.cell.step(projected, state, &layers);
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
            (hidden, PartTrace { examples, steps })
        };
        let (hidden, parts): (Vec<_>, Vec<_>) =
            B::map_parts(parts::<B>(batch_size), scan).into_iter().unzip();
        let trace = Trace { of_input: weight, of_hidden: of_hidden.weight, parts };
        let positions = hidden[0].len();
        (Sequence::new(by_position(hidden), positions).by_position().0, trace)
    }
}

impl<B: FusedOps> OperandGrads<B> {
    /// Returns the gradient of the input, `[batch_size, positions, d_input]`.
    pub(super) fn input(&self) -> Value<B> {
        let grad = self.projected.by_position();
        let [positions, batch_size, _] = grad.dims();
        let [d_input, _] = self.of_input.dims();
        self.projected
            .rows()
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
        let Self { of_input, of_hidden, parts } = self;
        let output_grad = Value::<B>(output_grad);
        let uses = recurrence.cell.uses(recurrence.gates.len());
        let layers = GateLayers::transposed_products(&of_hidden, &uses);
        let grads = B::map_parts(parts, |part| part.backward(&output_grad, &layers, recurrence));
        let positions = grads[0].projected.len();
        let sequence = |values: Vec<Vec<Value<B>>>| Sequence::new(by_position(values), positions);

        let (mut projected, mut product, mut states) = (Vec::new(), Vec::new(), Vec::new());
        let mut inputs: Vec<_> = uses.iter().map(|_| Vec::new()).collect();
        for part in grads {
            projected.push(part.projected);
            product.push(part.product);
            states.push(part.state);
            inputs.iter_mut().zip(part.inputs).for_each(|(inputs, input)| inputs.push(input));
        }
        let uses = uses.into_iter().zip(inputs).map(|(gates, inputs)| {
            let input = LayerInput::Sequence(sequence(inputs));
            Use { layer: LayerOf::Hidden, gates, input }
        });
        OperandGrads {
            uses: uses.collect(),
            projected: sequence(projected),
            product: (!product[0].is_empty()).then(|| sequence(product)),
            state: State::cat(states),
            of_input,
        }
    }
}

impl<B: FusedOps> PartTrace<B> {
    fn backward(
        self,
        output_grad: &Value<B>,
        transposed: &Products<B>,
        recurrence: &Recurrence,
    ) -> PartGrads<B> {
        let Self { examples, steps } = self;
        let positions = steps.len();
        let grad_of = |index| output_grad.position(index).examples(&examples);
        let ranges = recurrence.cell.uses(recurrence.gates.len());
        let mut inputs: Vec<Vec<Value<B>>> = ranges.iter().map(|_| Vec::new()).collect();
        let (mut projected, mut product) = (Vec::new(), Vec::new());

        let last = grad_of(recurrence.position(positions - 1, positions));
        let cell = match recurrence.cell.has_cell() {
            true => grad_of(positions),
            false => last.zeros_like(),
        };
        let mut state = State { hidden: last.zeros_like(), cell };
        for (index, step) in steps.into_iter().enumerate().rev() {
            state.hidden = state.hidden + grad_of(recurrence.position(index, positions));
            let grads = recurrence.cell.step_backward(step, state, transposed);
            projected.push(grads.projected);
            product.extend(grads.product);
            inputs.iter_mut().zip(grads.inputs).for_each(|(inputs, input)| inputs.push(input));
            state = grads.carried;
        }
        // The backward pass visits the last position first; put all sequences into the input's
        // order.
        if !recurrence.reverse {
            inputs.iter_mut().chain([&mut projected, &mut product]).for_each(|all| all.reverse());
        }
        PartGrads { projected, product, state, inputs }
    }
}

/// Returns the parts of a batch that are computed separately.
fn parts<B: FusedOps>(batch_size: usize) -> Vec<Range<usize>> {
    let size = B::examples_apart().unwrap_or(batch_size).max(1);
    let starts = (0..batch_size.max(1)).step_by(size);
    starts.map(|start| start..batch_size.min(start + size)).collect()
}

/// Orders the values of each part by position, and then by part.
fn by_position<T>(parts: Vec<Vec<T>>) -> Vec<T> {
    let positions = parts.first().map_or(0, Vec::len);
    let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
    (0..positions)
        .flat_map(|_| parts.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>())
        .collect()
}

impl Recurrence {
    /// Returns the position that the cell visits as number `index`.
    fn position(&self, index: usize, positions: usize) -> usize {
        if self.reverse { positions - 1 - index } else { index }
    }
}
