use burn::backend::Backend;

use super::fused_ops::FusedOps;
use super::gate_layers::Products;
use super::settings::LstmCell;
use super::state::{State, StepGrads};
use super::value::Value;

/// The values that the forward pass of one position keeps for the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Step<B: Backend> {
    hidden_before: Value<B>,
    cell_before: Value<B>,
    values: CellValues<B>,
}

/// The values that one position computes.
#[derive(Clone, Debug)]
struct CellValues<B: Backend> {
    /// Input, forget (unless it is coupled) and output gate, and the candidate, side by side.
    gates: Value<B>,
    /// The cell before clipping, if it is clipped.
    unclipped: Option<Value<B>>,
    cell: Value<B>,
    /// Activation of the cell.
    activated: Value<B>,
    hidden: Value<B>,
}

/// The values of the gates, `[batch_size, d_hidden]` each.
struct Gates<B: Backend> {
    input: Value<B>,
    forget: Value<B>,
    output: Value<B>,
    candidate: Value<B>,
}

impl LstmCell {
    fn split<B: Backend>(self, gates: &Value<B>, size: usize) -> Gates<B> {
        let gate = |index| gates.clone().narrow(1, index * size, size);
        let count = self.sigmoid_gates();
        let input = gate(0);
        let forget = if self.coupled { input.clone().one_minus() } else { gate(1) };
        Gates { input, forget, output: gate(count - 1), candidate: gate(count) }
    }

    pub(super) fn forward<B: FusedOps>(
        self,
        projected: Value<B>,
        state: State<B>,
        layer: &Products<B>,
    ) -> (State<B>, Step<B>) {
        let product = layer.of(state.hidden.clone(), 0..self.sigmoid_gates() + 1);
        let values = match B::lstm(&projected.0, &product.0, &state.cell.0, self) {
            Some(values) => {
                let [gates, cell, activated, hidden] = values.map(Value);
                CellValues { gates, unclipped: None, cell, activated, hidden }
            }
            None => self.forward_by_operations(projected, product, state.cell.clone()),
        };
        let next = State { hidden: values.hidden.clone(), cell: values.cell.clone() };
        (next, Step { hidden_before: state.hidden, cell_before: state.cell, values })
    }

    /// Computes one position with Burn's operations.
    fn forward_by_operations<B: FusedOps>(
        self,
        projected: Value<B>,
        product: Value<B>,
        cell_before: Value<B>,
    ) -> CellValues<B> {
        let [_, size] = cell_before.dims();
        let count = self.sigmoid_gates();
        let sum = projected + product;
        let gates = Value::cat(
            vec![
                self.gates.apply_by_operations(sum.clone().narrow(1, 0, count * size)),
                self.candidate.apply_by_operations(sum.narrow(1, count * size, size)),
            ],
            1,
        );
        let Gates { input, forget, output, candidate } = self.split(&gates, size);
        let cell = forget * cell_before + input * candidate;
        let (cell, unclipped) = match self.clip {
            Some(bound) => (cell.clone().clamp(bound), Some(cell)),
            None => (cell, None),
        };
        let activated = self.hidden.apply_by_operations(cell.clone());
        let hidden = output * activated.clone();
        CellValues { gates, unclipped, cell, activated, hidden }
    }

    pub(super) fn backward<B: FusedOps>(
        self,
        step: Step<B>,
        grad: State<B>,
        transposed: &Products<B>,
    ) -> StepGrads<B> {
        let Step { hidden_before, cell_before, values } = step;
        let kept = [&values.gates.0, &cell_before.0, &values.activated.0];
        let [projected, cell] = match B::lstm_backward(kept, [&grad.hidden.0, &grad.cell.0], self) {
            Some(grads) => grads.map(Value),
            None => self.backward_by_operations(values, cell_before, grad),
        };
        let hidden = transposed.of(projected.clone(), 0..self.sigmoid_gates() + 1);
        StepGrads {
            projected,
            product: None,
            inputs: vec![hidden_before],
            carried: State { hidden, cell },
        }
    }

    /// Computes the gradients of the projection and of the previous cell with Burn's operations.
    fn backward_by_operations<B: FusedOps>(
        self,
        values: CellValues<B>,
        cell_before: Value<B>,
        grad: State<B>,
    ) -> [Value<B>; 2] {
        let CellValues { gates, unclipped, activated, .. } = values;
        let [_, size] = cell_before.dims();
        let sigmoid_gates = gates.clone().narrow(1, 0, self.sigmoid_gates() * size);
        let Gates { input, forget, output, candidate } = self.split(&gates, size);

        let output_grad = grad.hidden.clone() * activated.clone();
        let through = self.hidden.backward_by_operations(activated, grad.hidden * output);
        let cell_grad = grad.cell + through;
        let cell_grad = match (self.clip, unclipped) {
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
        let gate_grads = Value::cat(gate_grads, 1);
        let projected = vec![
            self.gates.backward_by_operations(sigmoid_gates, gate_grads),
            self.candidate.backward_by_operations(candidate, candidate_grad),
        ];
        [Value::cat(projected, 1), cell_grad * forget]
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
        fn fused_lstm_equals_the_operations_of_burn(
            rows in 1usize..70,
            size in 1usize..150,
            coupled: bool,
            gates in any_gate_function(),
            candidate in any_gate_function(),
            hidden in any_gate_function(),
        ) {
            let lstm = LstmCell { coupled, gates, candidate, hidden, clip: None };
            let width = (lstm.sigmoid_gates() + 1) * size;
            let [projected, product] = [0.3, 0.7].map(|phase| ramp([rows, width], phase));
            let [cell, hidden_grad, cell_grad] =
                [0.1, 0.5, 0.9].map(|phase| ramp([rows, size], phase));

            let native = Flex::lstm(&projected.0, &product.0, &cell.0, lstm).unwrap().map(Value);
            let oracle = lstm.forward_by_operations(projected, product, cell.clone());
            let expected = [&oracle.gates, &oracle.cell, &oracle.activated, &oracle.hidden];
            for (native, expected) in native.iter().zip(expected) {
                values(native).assert_approx_eq::<f32>(&values(expected), Default::default());
            }

            let kept = [&oracle.gates.0, &cell.0, &oracle.activated.0];
            let native = Flex::lstm_backward(kept, [&hidden_grad.0, &cell_grad.0], lstm);
            let grad = State { hidden: hidden_grad, cell: cell_grad };
            let expected = lstm.backward_by_operations(oracle, cell, grad);
            for (native, expected) in native.unwrap().map(Value).iter().zip(&expected) {
                values(native).assert_approx_eq::<f32>(&values(expected), Default::default());
            }
        }
    }

    #[test]
    fn clipped_cells_are_left_to_the_operations_of_burn() {
        let gate = GateFunction::Tanh;
        let (coupled, clip) = (false, Some(1.0));
        let lstm = LstmCell { coupled, gates: gate, candidate: gate, hidden: gate, clip };
        let [sum, cell] = [ramp([2, 12], 0.0), ramp([2, 3], 0.0)];
        assert!(Flex::lstm(&sum.0, &sum.0, &cell.0, lstm).is_none());
        let kept = [&sum.0, &cell.0, &cell.0];
        assert!(Flex::lstm_backward(kept, [&cell.0, &cell.0], lstm).is_none());
    }
}
