//! The backward step of a recurrent layer.

use burn::backend::{Backend, tensor::FloatTensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::sequence::{HiddenUse, Operands, Trace};
use super::value::Value;
use super::{Recurrence, RecurrentOps};
use crate::grads::recording::{self, RawRecord};
use crate::ops::{LayerRule, Slot};

/// Parents are projected input, hidden state, cell, weight and bias.
#[derive(Debug)]
struct RecurrentStep;

impl<B: Backend> Backward<B, 5> for RecurrentStep {
    type State = (Trace<B>, Recurrence);

    fn backward(self, ops: Ops<Self::State, 5>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        let (trace, recurrence) = ops.state;
        let [projected, hidden, cell, weight, bias] = ops.parents;
        let found = trace.backward(output_grad, &recurrence);

        for (node, grad) in
            [(projected, found.projected), (hidden, found.state.hidden), (cell, found.state.cell)]
        {
            if let Some(node) = node {
                grads.register::<B>(node.id, grad.0);
            }
        }
        if recording::is_active() {
            if weight.is_some() || bias.is_some() {
                found.uses.into_iter().for_each(|one| one.record(&recurrence));
            }
            return;
        }
        if let Some(node) = weight {
            let parts = found.uses.iter().map(HiddenUse::weight_grad).collect();
            grads.register::<B>(node.id, Value::cat(parts, 1).0);
        }
        if let Some(node) = bias {
            let parts = found.uses.iter().map(HiddenUse::bias_grad).collect();
            grads.register::<B>(node.id, Value::cat(parts, 0).0);
        }
    }
}

impl<B: Backend> HiddenUse<B> {
    /// Gradients of the products with `count` gates from `start` on.
    fn grad_of(&self, start: usize, count: usize) -> Value<B> {
        let [_, _, size] = self.input.dims();
        let [_, _, features] = self.output_grad.dims();
        let grad = self.output_grad.clone();
        if count * size == features { grad } else { grad.narrow(2, start * size, count * size) }
    }

    /// Positions and examples as rows.
    fn rows(value: Value<B>) -> Value<B> {
        let [positions, batch_size, features] = value.dims();
        value.reshape([positions * batch_size, features])
    }

    fn weight_grad(&self) -> Value<B> {
        let grad = self.grad_of(self.gates.start, self.gates.len());
        Self::rows(self.input.clone()).swap_dims(0, 1).matmul(Self::rows(grad))
    }

    fn bias_grad(&self) -> Value<B> {
        let rows = Self::rows(self.grad_of(self.gates.start, self.gates.len()));
        let [_, features] = rows.dims();
        Value::<B>(B::float_sum_dim(rows.0, 0)).reshape([features])
    }

    /// One contribution a gate, the batch on axis 0 and the positions on axis 1.
    fn record(self, recurrence: &Recurrence) {
        let input = self.input.clone().swap_dims(0, 1);
        for index in self.gates.clone() {
            let gate = recurrence.gates[index];
            if !gate.weight && !gate.bias {
                continue;
            }
            let output_grad = self.grad_of(index, 1).swap_dims(0, 1);
            recording::push(RawRecord {
                layer: gate.ids,
                rule: LayerRule::Linear,
                weight: gate.weight,
                bias: gate.bias,
                input: gate.weight.then(|| Slot::new(input.clone().0)),
                output_grad: Slot::new(output_grad.0),
            });
        }
    }
}

impl<B: RecurrentOps, C: CheckpointStrategy> RecurrentOps for Autodiff<B, C> {
    fn parametric_recurrent(
        projected: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        cell: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        recurrence: Recurrence,
    ) -> FloatTensor<Self> {
        let tensors = [projected, hidden, cell, weight, bias];
        let nodes = tensors.each_ref().map(|tensor| tensor.node());
        let operands = Operands::<B>::new(tensors.map(|tensor| tensor.into_primitive()));
        match Backward::<B, 5>::prepare::<C>(RecurrentStep, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (output, trace) = operands.forward(&recurrence);
                prep.finish((trace, recurrence), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(operands.forward(&recurrence).0),
        }
    }
}
