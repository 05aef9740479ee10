use burn::backend::Backend;

use super::GateFunction;
use super::gate_layers::GateLayers;
use super::state::{State, StepGrads};
use super::value::Value;

/// The cell of an LSTM, with the gates input, forget (unless it is coupled), output and candidate.
#[derive(Clone, Copy, Debug)]
pub struct LstmCell {
    /// Whether the forget gate is one minus the input gate.
    pub(crate) coupled: bool,
    /// Activation of the input, forget and output gates.
    pub(crate) gates: GateFunction,
    /// Activation of the candidate.
    pub(crate) candidate: GateFunction,
    /// Activation of the cell, for the hidden state.
    pub(crate) hidden: GateFunction,
    /// Bound on the magnitude of the cell.
    pub(crate) clip: Option<f64>,
}

/// What the forward pass of one position keeps for the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Step<B: Backend> {
    hidden_before: Value<B>,
    cell_before: Value<B>,
    /// Input, forget (unless it is coupled) and output gate, side by side.
    gates: Value<B>,
    candidate: Value<B>,
    /// The cell before clipping, if it is clipped.
    cell: Option<Value<B>>,
    /// Activation of the cell.
    activated: Value<B>,
}

/// The values of the gates, `[batch_size, d_hidden]` each.
struct Gates<B: Backend> {
    input: Value<B>,
    forget: Value<B>,
    output: Value<B>,
}

impl LstmCell {
    /// Returns the number of gates without the candidate.
    fn sigmoid_gates(self) -> usize {
        if self.coupled { 2 } else { 3 }
    }

    fn split<B: Backend>(self, gates: &Value<B>, size: usize) -> Gates<B> {
        let gate = |index| gates.clone().narrow(1, index * size, size);
        let input = gate(0);
        let forget = if self.coupled { input.clone().one_minus() } else { gate(1) };
        Gates { input, forget, output: gate(self.sigmoid_gates() - 1) }
    }

    pub(super) fn forward<B: Backend>(
        self,
        projected: Value<B>,
        state: State<B>,
        layer: &GateLayers<B>,
    ) -> (State<B>, Step<B>) {
        let [_, size] = state.hidden.dims();
        let count = self.sigmoid_gates();
        let sum = projected + layer.forward(state.hidden.clone(), 0..count + 1);
        let gates = self.gates.apply(sum.clone().narrow(1, 0, count * size));
        let candidate = self.candidate.apply(sum.narrow(1, count * size, size));

        let Gates { input, forget, output } = self.split(&gates, size);
        let cell = forget * state.cell.clone() + input * candidate.clone();
        let (cell, unclipped) = match self.clip {
            Some(bound) => (cell.clone().clamp(bound), Some(cell)),
            None => (cell, None),
        };
        let activated = self.hidden.apply(cell.clone());
        let hidden = output * activated.clone();
        let step = Step {
            hidden_before: state.hidden,
            cell_before: state.cell,
            gates,
            candidate,
            cell: unclipped,
            activated,
        };
        (State { hidden, cell }, step)
    }

    pub(super) fn backward<B: Backend>(
        self,
        step: Step<B>,
        grad: State<B>,
        weight: &Value<B>,
    ) -> StepGrads<B> {
        let Step { hidden_before, cell_before, gates, candidate, cell, activated } = step;
        let [_, size] = hidden_before.dims();
        let count = self.sigmoid_gates();
        let Gates { input, forget, output } = self.split(&gates, size);

        let output_grad = grad.hidden.clone() * activated.clone();
        let cell_grad = grad.cell + self.hidden.backward(activated, grad.hidden * output);
        let cell_grad = match (self.clip, cell) {
            (Some(bound), Some(cell)) => Value::clamp_backward(cell, cell_grad, bound),
            _ => cell_grad,
        };
        let candidate_grad = cell_grad.clone() * input;
        let gate_grads = if self.coupled {
            let input_grad = cell_grad.clone() * (candidate.clone() - cell_before);
            vec![input_grad, output_grad]
        } else {
            let input_grad = cell_grad.clone() * candidate.clone();
            let forget_grad = cell_grad.clone() * cell_before;
            vec![input_grad, forget_grad, output_grad]
        };
        let projected = Value::cat(
            vec![
                self.gates.backward(gates, Value::cat(gate_grads, 1)),
                self.candidate.backward(candidate, candidate_grad),
            ],
            1,
        );
        let hidden = GateLayers::backward(weight, projected.clone(), 0..count + 1);
        StepGrads {
            projected,
            product: None,
            inputs: vec![hidden_before],
            carried: State { hidden, cell: cell_grad * forget },
        }
    }
}
