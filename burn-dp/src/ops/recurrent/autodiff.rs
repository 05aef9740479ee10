//! The backward step of a recurrent layer.

use burn::backend::{Backend, tensor::FloatTensor};
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::gate_parameters::{GATES, GateParameters};
use super::sequence::{OperandGrads, Operands, Trace};
use super::uses::{Sees, Use, record};
use super::value::Value;
use super::{Recurrence, RecurrentOps};
use crate::ops::recording;

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
        let ids = parameters.iter().map(|node| node.as_ref().map(|node| node.id));
        let trained = Trained { parameters: ids.collect() };
        match recording::is_active() {
            true => record_uses(found, &trained, &recurrence, size),
            false => register_uses(found, &trained, size, grads),
        }
    }
}

/// The nodes of the weights and biases that are trained.
struct Trained {
    /// Weights and biases that see the input, then those that see the hidden state.
    parameters: Vec<Option<NodeId>>,
}

impl Trained {
    /// Weight and bias of gate `index`.
    fn of(&self, sees: Sees, index: usize) -> [Option<NodeId>; 2] {
        let first = if sees == Sees::Input { 0 } else { 2 * GATES };
        [first + index, first + GATES + index].map(|place| self.parameters[place])
    }
}

/// The ordinary gradients.
fn register_uses<B: Backend>(
    found: OperandGrads<B>,
    trained: &Trained,
    size: usize,
    grads: &mut Gradients,
) {
    let OperandGrads { projected, product, uses, .. } = found;
    for one in uses {
        let products = match one.sees {
            Sees::Input => &projected,
            Sees::Hidden => product.as_ref().unwrap_or(&projected),
        };
        for index in one.gates.clone() {
            let [weight, bias] = trained.of(one.sees, index);
            if let Some(node) = weight {
                grads.register::<B>(node, one.weight_grad(products, index, size).0);
            }
            if let Some(node) = bias {
                grads.register::<B>(node, Use::bias_grad(products, index, size).0);
            }
        }
    }
}

/// Hands over the contributions, one gate after another: what is not kept of one is freed before the
/// next.
fn record_uses<B: Backend>(
    found: OperandGrads<B>,
    trained: &Trained,
    recurrence: &Recurrence,
    size: usize,
) {
    let OperandGrads { projected, product, uses, .. } = found;
    let any_weight =
        |one: &Use<B>| one.gates.clone().any(|index| trained.of(one.sees, index)[0].is_some());
    let uses: Vec<_> = uses
        .into_iter()
        .map(|one| (one.sees, one.gates.clone(), any_weight(&one).then(|| one.seen_by_example())))
        .collect();
    let mut products = product.map(|product| product.by_example(size).into_iter());
    for (index, projected) in projected.by_example(size).into_iter().enumerate() {
        let product = products.as_mut().and_then(Iterator::next);
        for (sees, gates, seen) in &uses {
            let [weight, bias] = trained.of(*sees, index);
            if !gates.contains(&index) || (weight.is_none() && bias.is_none()) {
                continue;
            }
            let layers = recurrence.gates[index];
            let (layer, output_grad) = match sees {
                Sees::Input => (layers.input, &projected),
                Sees::Hidden => (layers.hidden, product.as_ref().unwrap_or(&projected)),
            };
            let seen = seen.clone().filter(|_| weight.is_some());
            record(layer, seen, bias.is_some(), output_grad.clone());
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
