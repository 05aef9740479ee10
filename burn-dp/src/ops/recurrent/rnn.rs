use burn::backend::Backend;

use super::fused_ops::FusedOps;
use super::gate_layers::Products;
use super::settings::RnnCell;
use super::state::{State, StepGrads};
use super::value::Value;

/// The values that the forward pass of one position keeps for the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Step<B: Backend> {
    hidden_before: Value<B>,
    /// Output of the activation before clipping.
    output: Value<B>,
}

impl RnnCell {
    pub(super) fn forward<B: FusedOps>(
        self,
        projected: Value<B>,
        state: State<B>,
        layer: &Products<B>,
    ) -> (State<B>, Step<B>) {
        let hidden_before = state.hidden;
        let product = layer.of(hidden_before.clone(), 0..1);
        let output = self.activation.apply(projected + product);
        let hidden = match self.clip {
            Some(bound) => output.clone().clamp(bound),
            None => output.clone(),
        };
        (State { hidden, cell: state.cell }, Step { hidden_before, output })
    }

    pub(super) fn backward<B: FusedOps>(
        self,
        step: Step<B>,
        grad: State<B>,
        transposed: &Products<B>,
    ) -> StepGrads<B> {
        let Step { hidden_before, output } = step;
        let hidden = match self.clip {
            Some(bound) => Value::clamp_backward(output.clone(), grad.hidden, bound),
            None => grad.hidden,
        };
        let projected = self.activation.backward(output, hidden);
        let hidden = transposed.of(projected.clone(), 0..1);
        StepGrads {
            projected,
            product: None,
            inputs: vec![hidden_before],
            carried: State { hidden, cell: grad.cell },
        }
    }
}
