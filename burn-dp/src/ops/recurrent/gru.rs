use burn::backend::Backend;

use super::GateFunction;
use super::gate_layers::GateLayers;
use super::state::{State, StepGrads};
use super::value::Value;

/// The cell of a GRU, with the gates update, reset and candidate.
#[derive(Clone, Copy, Debug)]
pub struct GruCell {
    /// Whether the reset gate scales the product with the hidden state, instead of the hidden
    /// state.
    pub(crate) reset_after: bool,
    /// Activation of the update and reset gates.
    pub(crate) gates: GateFunction,
    /// Activation of the candidate.
    pub(crate) candidate: GateFunction,
    /// Bound on the magnitude of the hidden state.
    pub(crate) clip: Option<f64>,
}

/// What the forward pass of one position keeps for the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Step<B: Backend> {
    hidden_before: Value<B>,
    /// Update and reset gate, side by side.
    gates: Value<B>,
    candidate: Value<B>,
    /// The product with the hidden state, if the reset gate scales the product.
    product: Option<Value<B>>,
    /// The hidden state before clipping, if it is clipped.
    hidden: Option<Value<B>>,
}

impl GruCell {
    pub(super) fn forward<B: Backend>(
        self,
        projected: Value<B>,
        state: State<B>,
        layer: &GateLayers<B>,
    ) -> (State<B>, Step<B>) {
        let before = state.hidden;
        let [_, size] = before.dims();
        let of_gates = |value: Value<B>| value.narrow(1, 0, 2 * size);
        let of_candidate = |value: Value<B>| value.narrow(1, 2 * size, size);

        let (gate_product, product) = if self.reset_after {
            let product = layer.forward(before.clone(), 0..3);
            (of_gates(product.clone()), Some(of_candidate(product)))
        } else {
            (layer.forward(before.clone(), 0..2), None)
        };
        let gates = self.gates.apply(of_gates(projected.clone()) + gate_product);
        let update = gates.clone().narrow(1, 0, size);
        let reset = gates.clone().narrow(1, size, size);
        let candidate_product = match &product {
            Some(product) => reset * product.clone(),
            None => layer.forward(reset * before.clone(), 2..3),
        };
        let candidate = self.candidate.apply(of_candidate(projected) + candidate_product);

        let hidden = candidate.clone() * update.clone().one_minus() + update * before.clone();
        let (hidden, unclipped) = match self.clip {
            Some(bound) => (hidden.clone().clamp(bound), Some(hidden)),
            None => (hidden, None),
        };
        let step = Step { hidden_before: before, gates, candidate, product, hidden: unclipped };
        (State { hidden, cell: state.cell }, step)
    }

    pub(super) fn backward<B: Backend>(
        self,
        step: Step<B>,
        grad: State<B>,
        weight: &Value<B>,
    ) -> StepGrads<B> {
        let Step { hidden_before: before, gates, candidate, product, hidden } = step;
        let [_, size] = before.dims();
        let update = gates.clone().narrow(1, 0, size);
        let reset = gates.clone().narrow(1, size, size);

        let hidden_grad = match (self.clip, hidden) {
            (Some(bound), Some(hidden)) => Value::clamp_backward(hidden, grad.hidden, bound),
            _ => grad.hidden,
        };
        let update_grad = hidden_grad.clone() * (before.clone() - candidate.clone());
        let candidate_grad = hidden_grad.clone() * update.clone().one_minus();
        let candidate_grad = self.candidate.backward(candidate, candidate_grad);
        let carried = hidden_grad * update;

        match product {
            Some(product) => {
                let reset_grad = candidate_grad.clone() * product;
                let gate_grads = Value::cat(vec![update_grad, reset_grad], 1);
                let gate_grads = self.gates.backward(gates, gate_grads);
                let product_grad = candidate_grad.clone() * reset;
                let product = Value::cat(vec![gate_grads.clone(), product_grad], 1);
                let hidden = carried + GateLayers::backward(weight, product.clone(), 0..3);
                StepGrads {
                    projected: Value::cat(vec![gate_grads, candidate_grad], 1),
                    product: Some(product),
                    inputs: vec![before],
                    carried: State { hidden, cell: grad.cell },
                }
            }
            None => {
                let scaled_grad = GateLayers::backward(weight, candidate_grad.clone(), 2..3);
                let reset_grad = scaled_grad.clone() * before.clone();
                let gate_grads = Value::cat(vec![update_grad, reset_grad], 1);
                let gate_grads = self.gates.backward(gates, gate_grads);
                let hidden = carried
                    + scaled_grad * reset.clone()
                    + GateLayers::backward(weight, gate_grads.clone(), 0..2);
                StepGrads {
                    projected: Value::cat(vec![gate_grads, candidate_grad], 1),
                    product: None,
                    inputs: vec![before.clone(), reset * before],
                    carried: State { hidden, cell: grad.cell },
                }
            }
        }
    }
}
