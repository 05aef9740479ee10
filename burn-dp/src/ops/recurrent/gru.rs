use burn::backend::Backend;

use super::fused_ops::FusedOps;
use super::gate_layers::Products;
use super::settings::GruCell;
use super::state::{State, StepGrads};
use super::value::Value;

/// The values that the forward pass of one position keeps for the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Step<B: Backend> {
    hidden_before: Value<B>,
    /// The product with the hidden state, if the reset gate scales the product.
    product: Option<Value<B>>,
    values: CellValues<B>,
}

/// The values that one position computes.
#[derive(Clone, Debug)]
struct CellValues<B: Backend> {
    /// Update and reset gate, and the candidate, side by side.
    gates: Value<B>,
    /// The hidden state before clipping, if it is clipped.
    unclipped: Option<Value<B>>,
    hidden: Value<B>,
}

/// Gradients of one position, where the reset gate scales the product.
struct ResetAfterGrads<B: Backend> {
    projected: Value<B>,
    product: Value<B>,
    /// The part of the gradient of the previous hidden state that does not pass through the
    /// product.
    carried: Value<B>,
}

impl GruCell {
    pub(super) fn forward<B: FusedOps>(
        self,
        projected: Value<B>,
        state: State<B>,
        layer: &Products<B>,
    ) -> (State<B>, Step<B>) {
        let before = state.hidden;
        let (values, product) = if self.reset_after {
            let product = layer.of(before.clone(), 0..3);
            let values = match B::gru(&projected.0, &product.0, &before.0, self) {
                Some(values) => {
                    let [gates, hidden] = values.map(Value);
                    CellValues { gates, unclipped: None, hidden }
                }
                None => self.reset_after_by_operations(projected, &product, before.clone()),
            };
            (values, Some(product))
        } else {
            (self.reset_before(projected, before.clone(), layer), None)
        };
        let next = State { hidden: values.hidden.clone(), cell: state.cell };
        (next, Step { hidden_before: before, product, values })
    }

    /// Computes one position with Burn's operations, if the reset gate scales the product.
    fn reset_after_by_operations<B: FusedOps>(
        self,
        projected: Value<B>,
        product: &Value<B>,
        before: Value<B>,
    ) -> CellValues<B> {
        let [_, size] = before.dims();
        let of_gates = |value: &Value<B>| value.clone().narrow(1, 0, 2 * size);
        let of_candidate = |value: &Value<B>| value.clone().narrow(1, 2 * size, size);
        let gates = self.gates.apply_by_operations(of_gates(&projected) + of_gates(product));
        let reset = gates.clone().narrow(1, size, size);
        let sum = of_candidate(&projected) + reset * of_candidate(product);
        self.mix(gates, self.candidate.apply_by_operations(sum), before)
    }

    /// Computes one position, if the reset gate scales the hidden state.
    fn reset_before<B: FusedOps>(
        self,
        projected: Value<B>,
        before: Value<B>,
        layer: &Products<B>,
    ) -> CellValues<B> {
        let [_, size] = before.dims();
        let product = layer.of(before.clone(), 0..2);
        let gates = self.gates.apply(projected.clone().narrow(1, 0, 2 * size) + product);
        let reset = gates.clone().narrow(1, size, size);
        let product = layer.of(reset * before.clone(), 2..3);
        let candidate = self.candidate.apply(projected.narrow(1, 2 * size, size) + product);
        self.mix(gates, candidate, before)
    }

    /// Mixes the candidate with the previous hidden state.
    fn mix<B: FusedOps>(
        self,
        gates: Value<B>,
        candidate: Value<B>,
        before: Value<B>,
    ) -> CellValues<B> {
        let [_, size] = before.dims();
        let update = gates.clone().narrow(1, 0, size);
        let hidden = candidate.clone() * update.clone().one_minus() + update * before;
        let (hidden, unclipped) = match self.clip {
            Some(bound) => (hidden.clone().clamp(bound), Some(hidden)),
            None => (hidden, None),
        };
        CellValues { gates: Value::cat(vec![gates, candidate], 1), unclipped, hidden }
    }

    pub(super) fn backward<B: FusedOps>(
        self,
        step: Step<B>,
        grad: State<B>,
        transposed: &Products<B>,
    ) -> StepGrads<B> {
        let Step { hidden_before: before, product, values } = step;
        let Some(product) = product else {
            return self.reset_before_backward(values, before, grad, transposed);
        };
        let kept = [&values.gates.0, &product.0, &before.0];
        let ResetAfterGrads { projected, product, carried } =
            match B::gru_backward(kept, &grad.hidden.0, self) {
                Some(grads) => {
                    let [projected, product, carried] = grads.map(Value);
                    ResetAfterGrads { projected, product, carried }
                }
                None => self.reset_after_backward_by_operations(
                    values,
                    product,
                    before.clone(),
                    grad.hidden,
                ),
            };
        let hidden = carried + transposed.of(product.clone(), 0..3);
        StepGrads {
            projected,
            product: Some(product),
            inputs: vec![before],
            carried: State { hidden, cell: grad.cell },
        }
    }

    /// Computes the gradients of one position with Burn's operations, if the reset gate scales the
    /// product.
    fn reset_after_backward_by_operations<B: FusedOps>(
        self,
        values: CellValues<B>,
        product: Value<B>,
        before: Value<B>,
        grad: Value<B>,
    ) -> ResetAfterGrads<B> {
        let [_, size] = before.dims();
        let gates = values.gates.clone().narrow(1, 0, 2 * size);
        let reset = gates.clone().narrow(1, size, size);
        let (update_grad, candidate_grad, carried) = self.mix_backward(values, before, grad);
        let reset_grad = candidate_grad.clone() * product.narrow(1, 2 * size, size);
        let gate_grads = Value::cat(vec![update_grad, reset_grad], 1);
        let gate_grads = self.gates.backward_by_operations(gates, gate_grads);
        let product_grad = candidate_grad.clone() * reset;
        ResetAfterGrads {
            projected: Value::cat(vec![gate_grads.clone(), candidate_grad], 1),
            product: Value::cat(vec![gate_grads, product_grad], 1),
            carried,
        }
    }

    /// Computes the gradients of one position, if the reset gate scales the hidden state.
    fn reset_before_backward<B: FusedOps>(
        self,
        values: CellValues<B>,
        before: Value<B>,
        grad: State<B>,
        transposed: &Products<B>,
    ) -> StepGrads<B> {
        let [_, size] = before.dims();
        let gates = values.gates.clone().narrow(1, 0, 2 * size);
        let reset = gates.clone().narrow(1, size, size);
        let (update_grad, candidate_grad, carried) =
            self.mix_backward(values, before.clone(), grad.hidden);
        let scaled_grad = transposed.of(candidate_grad.clone(), 2..3);
        let reset_grad = scaled_grad.clone() * before.clone();
        let gate_grads = Value::cat(vec![update_grad, reset_grad], 1);
        let gate_grads = self.gates.backward(gates, gate_grads);
        let hidden =
            carried + scaled_grad * reset.clone() + transposed.of(gate_grads.clone(), 0..2);
        StepGrads {
            projected: Value::cat(vec![gate_grads, candidate_grad], 1),
            product: None,
            inputs: vec![before.clone(), reset * before],
            carried: State { hidden, cell: grad.cell },
        }
    }

    /// Returns the gradients of the update gate, of the sum in the candidate, and of the previous
    /// hidden state.
    fn mix_backward<B: FusedOps>(
        self,
        values: CellValues<B>,
        before: Value<B>,
        grad: Value<B>,
    ) -> (Value<B>, Value<B>, Value<B>) {
        let [_, size] = before.dims();
        let update = values.gates.clone().narrow(1, 0, size);
        let candidate = values.gates.narrow(1, 2 * size, size);
        let grad = match (self.clip, values.unclipped) {
            (Some(bound), Some(hidden)) => Value::clamp_backward(hidden, grad, bound),
            _ => grad,
        };
        let update_grad = grad.clone() * (before - candidate.clone());
        let candidate_grad = grad.clone() * update.clone().one_minus();
        let candidate_grad = self.candidate.backward_by_operations(candidate, candidate_grad);
        (update_grad, candidate_grad, grad * update)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::Flex;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::GateFunction;
    use crate::ops::recurrent::oracle::{any_gate_function, ramp, values};

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn fused_gru_equals_the_operations_of_burn(
            rows in 1usize..70,
            size in 1usize..150,
            gates in any_gate_function(),
            candidate in any_gate_function(),
        ) {
            let gru = GruCell { reset_after: true, gates, candidate, clip: None };
            let [projected, product] = [0.3, 0.7].map(|phase| ramp([rows, 3 * size], phase));
            let [before, grad] = [0.1, 0.5].map(|phase| ramp([rows, size], phase));

            let native = Flex::gru(&projected.0, &product.0, &before.0, gru).unwrap().map(Value);
            let oracle = gru.reset_after_by_operations(projected, &product, before.clone());
            for (native, expected) in native.iter().zip([&oracle.gates, &oracle.hidden]) {
                values(native).assert_approx_eq::<f32>(&values(expected), Default::default());
            }

            let kept = [&oracle.gates.0, &product.0, &before.0];
            let native = Flex::gru_backward(kept, &grad.0, gru).unwrap().map(Value);
            let oracle = gru.reset_after_backward_by_operations(oracle, product, before, grad);
            let expected = [oracle.projected, oracle.product, oracle.carried];
            for (native, expected) in native.iter().zip(&expected) {
                values(native).assert_approx_eq::<f32>(&values(expected), Default::default());
            }
        }
    }

    #[test]
    fn clipped_cells_and_scaled_hidden_states_are_left_to_the_operations_of_burn() {
        let (gates, candidate) = (GateFunction::Sigmoid, GateFunction::Tanh);
        let [sum, before] = [ramp([2, 9], 0.0), ramp([2, 3], 0.0)];
        for (reset_after, clip) in [(true, Some(1.0)), (false, None)] {
            let gru = GruCell { reset_after, gates, candidate, clip };
            assert!(Flex::gru(&sum.0, &sum.0, &before.0, gru).is_none());
            let kept = [&sum.0, &sum.0, &before.0];
            assert!(Flex::gru_backward(kept, &before.0, gru).is_none());
        }
    }
}
