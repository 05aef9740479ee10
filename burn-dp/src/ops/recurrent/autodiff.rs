//! The backward step of a recurrent layer.

use burn::backend::{Backend, tensor::FloatTensor};
use burn::tensor::Shape;
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::parameters::{GATES, HiddenParameters};
use super::sequence::{HiddenUse, Operands, Trace};
use super::value::Value;
use super::{Recurrence, RecurrentOps};
use crate::grads::recording::{self, RawRecord};
use crate::ops::{LayerIds, Primitive, Slot};

/// Projected input, hidden state and cell, weights, biases.
const PARENTS: usize = 3 + 2 * GATES;

/// Parents are projected input, hidden state, cell, the weights and the biases of all gates.
#[derive(Debug)]
struct RecurrentStep;

impl<B: Backend> Backward<B, PARENTS> for RecurrentStep {
    type State = (Trace<B>, Recurrence);

    fn backward(self, ops: Ops<Self::State, PARENTS>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        let (trace, recurrence) = ops.state;
        let found = trace.backward(output_grad, &recurrence);
        let (operands, parameters) = ops.parents.split_at(3);
        let (weights, biases) = parameters.split_at(GATES);

        let operand_grads = [found.projected, found.state.hidden, found.state.cell];
        for (node, grad) in operands.iter().zip(operand_grads) {
            if let Some(node) = node {
                grads.register::<B>(node.id, grad.0);
            }
        }
        for one in found.uses {
            let seen = recording::is_active().then(|| by_example(one.input.clone()));
            for (index, &layer) in recurrence.gates.iter().enumerate() {
                let (weight, bias) = (&weights[index], &biases[index]);
                if !one.gates.contains(&index) || (weight.is_none() && bias.is_none()) {
                    continue;
                }
                if let Some(seen) = &seen {
                    let seen = weight.is_some().then(|| seen.clone());
                    one.record(index, layer, seen, bias.is_some());
                    continue;
                }
                if let Some(node) = weight {
                    grads.register::<B>(node.id, one.weight_grad(index).0);
                }
                if let Some(node) = bias {
                    grads.register::<B>(node.id, one.bias_grad(index).0);
                }
            }
        }
    }
}

impl<B: Backend> HiddenUse<B> {
    /// Gradient of the product with gate `index`.
    fn grad_of(&self, index: usize) -> Value<B> {
        let [_, _, size] = self.input.dims();
        self.output_grad.clone().narrow(2, index * size, size)
    }

    /// Positions and examples as rows.
    fn rows(value: Value<B>) -> Value<B> {
        let [positions, batch_size, features] = value.dims();
        value.reshape([positions * batch_size, features])
    }

    fn weight_grad(&self, index: usize) -> Value<B> {
        let grad = Self::rows(self.grad_of(index));
        Self::rows(self.input.clone()).swap_dims(0, 1).matmul(grad)
    }

    fn bias_grad(&self, index: usize) -> Value<B> {
        let rows = Self::rows(self.grad_of(index));
        let [_, features] = rows.dims();
        Value::<B>(B::float_sum_dim(rows.0, 0)).reshape([features])
    }

    /// One contribution for all positions; `seen` are the inputs by example, if the weight is trained.
    fn record(&self, index: usize, layer: LayerIds, seen: Option<Value<B>>, bias: bool) {
        let [_, _, size] = self.input.dims();
        recording::push(RawRecord {
            layer,
            primitive: Primitive::Linear,
            weight: seen.is_some().then(|| Shape::new([size, size])),
            bias,
            kept: seen.into_iter().map(|seen| Slot::new(seen.0)).collect(),
            ids: None,
            output_grad: Slot::new(by_example(self.grad_of(index)).0),
        });
    }
}

/// The batch on axis 0 and the positions on axis 1, in memory too: the rules read it several times.
fn by_example<B: Backend>(value: Value<B>) -> Value<B> {
    let [positions, batch_size, features] = value.dims();
    value
        .swap_dims(0, 1)
        .reshape([batch_size, positions * features])
        .reshape([batch_size, positions, features])
}

impl<B: RecurrentOps, C: CheckpointStrategy> RecurrentOps for Autodiff<B, C> {
    fn parametric_recurrent(
        projected: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        cell: FloatTensor<Self>,
        parameters: HiddenParameters<Self>,
        recurrence: Recurrence,
    ) -> FloatTensor<Self> {
        let (weights, biases) = parameters.into_parts();
        let operands = [projected, hidden, cell];
        let mut tensors = operands.iter().chain(&weights).chain(&biases);
        let nodes: [_; PARENTS] =
            std::array::from_fn(|_| tensors.next().expect("there are that many tensors").node());
        let inner = |tensor: FloatTensor<Self>| tensor.into_primitive();
        let operands = Operands::<B>::new(
            operands.map(inner),
            weights.map(inner),
            biases.map(inner),
            &recurrence,
        );
        match Backward::<B, PARENTS>::prepare::<C>(RecurrentStep, nodes).compute_bound().stateful()
        {
            OpsKind::Tracked(prep) => {
                let (output, trace) = operands.forward(&recurrence);
                prep.finish((trace, recurrence), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(operands.forward(&recurrence).0),
        }
    }
}
