//! The backward step of a recurrent layer.

use burn::backend::{Backend, tensor::FloatTensor};
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::gate_parameters::{GATES, GateParameters};
use super::sequence::{Operands, Trace};
use super::uses::{Sees, Use, record};
use super::value::Value;
use super::{Recurrence, RecurrentOps};
use crate::grads::recording;

/// Input, hidden state and cell; weights and biases that see the input, then the hidden state.
const PARENTS: usize = 3 + 4 * GATES;

/// Parents are input, hidden state, cell, and of all gates the weights and the biases that see the input,
/// then those that see the hidden state.
#[derive(Debug)]
struct RecurrentStep;

impl<B: Backend> Backward<B, PARENTS> for RecurrentStep {
    /// With the input, if it is kept.
    type State = (Trace<B>, Recurrence, Option<NodeId>);

    fn backward(
        self,
        ops: Ops<Self::State, PARENTS>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let output_grad = grads.consume::<B>(&ops.node);
        let (trace, recurrence, input) = ops.state;
        let input = input.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        let mut found = trace.backward(output_grad, &recurrence);
        let size = found.state.hidden.dims::<2>()[1];

        let (operands, parameters) = ops.parents.split_at(3);
        if let Some(node) = &operands[0] {
            grads.register::<B>(node.id, found.input().0);
        }
        let state = [found.state.hidden.clone(), found.state.cell.clone()];
        for (node, grad) in operands[1..].iter().zip(state) {
            if let Some(node) = node {
                grads.register::<B>(node.id, grad.0);
            }
        }

        // Where no weight that sees the input is trained, its biases follow from the products alone.
        let seen = match input {
            Some(input) => Value::<B>(input).swap_dims(0, 1),
            None => found.projected.all(),
        };
        let gates = 0..recurrence.gates.len();
        found.uses.push(Use { sees: Sees::Input, gates, seen });

        let is_recording = recording::is_active();
        for one in found.uses {
            let products = match one.sees {
                Sees::Input => &found.projected,
                Sees::Hidden => found.product.as_ref().unwrap_or(&found.projected),
            };
            let first = if one.sees == Sees::Input { 0 } else { 2 * GATES };
            let trained =
                |index: usize| (&parameters[first + index], &parameters[first + GATES + index]);
            let any_weight = one.gates.clone().any(|index| trained(index).0.is_some());
            let seen = (is_recording && any_weight).then(|| one.seen_by_example());
            for index in one.gates.clone() {
                let (weight, bias) = trained(index);
                if is_recording {
                    if weight.is_some() || bias.is_some() {
                        let seen = seen.clone().filter(|_| weight.is_some());
                        let layers = recurrence.gates[index];
                        let layer = match one.sees {
                            Sees::Input => layers.input,
                            Sees::Hidden => layers.hidden,
                        };
                        record(layer, seen, bias.is_some(), products, index, size);
                    }
                    continue;
                }
                if let Some(node) = weight {
                    let grad = one.weight_grad(products, index, size);
                    grads.register::<B>(node.id, grad.0);
                }
                if let Some(node) = bias {
                    let grad = Use::bias_grad(products, index, size);
                    grads.register::<B>(node.id, grad.0);
                }
            }
        }
    }
}

impl<B: RecurrentOps, C: CheckpointStrategy> RecurrentOps for Autodiff<B, C> {
    fn parametric_recurrent(
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        cell: FloatTensor<Self>,
        of_input: GateParameters<Self>,
        of_hidden: GateParameters<Self>,
        recurrence: Recurrence,
    ) -> FloatTensor<Self> {
        let kept = recurrence.keeps_input.then(|| input.clone());
        let parameters = [of_input.into_parts(), of_hidden.into_parts()];
        let operands = [input, hidden, cell];
        let of_gates = parameters.iter().flat_map(|(weights, biases)| weights.iter().chain(biases));
        let mut tensors = operands.iter().chain(of_gates);
        let nodes: [_; PARENTS] =
            std::array::from_fn(|_| tensors.next().expect("there are that many tensors").node());
        let inner = |tensor: FloatTensor<Self>| tensor.into_primitive();
        let parameters =
            parameters.map(|(weights, biases)| (weights.map(inner), biases.map(inner)));
        let operands = Operands::<B>::new(operands.map(inner), parameters, &recurrence);
        match Backward::<B, PARENTS>::prepare::<C>(RecurrentStep, nodes).compute_bound().stateful()
        {
            OpsKind::Tracked(mut prep) => {
                let kept = kept.map(|input| prep.checkpoint(&input));
                let (output, trace) = operands.forward(&recurrence);
                prep.finish((trace, recurrence, kept), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(operands.forward(&recurrence).0),
        }
    }
}
