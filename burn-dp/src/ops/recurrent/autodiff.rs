//! The backward step of a recurrent layer.

use burn::backend::tensor::FloatTensor;
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::gate_parameters::{GATES, GateParameters};
use super::sequence::{OperandGrads, Operands, Trace};
use super::uses::{LayerInput, LayerOf, Use, record};
use super::value::Value;
use super::{FusedOps, Recurrence};
use crate::ops::recording;

/// Input, hidden state and cell; weights and biases of the input, then of the hidden state.
const PARENTS: usize = 3 + 4 * GATES;

/// The backward step of a recurrent layer. Its parents are input, hidden state and cell; the
/// weights and the biases of all gates for the input; and the weights and the biases for the hidden
/// state.
#[derive(Debug)]
struct RecurrentStep;

impl<B: FusedOps> Backward<B, PARENTS> for RecurrentStep {
    /// The last part is the input, if it is kept.
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

        let input = input.map_or(LayerInput::Dropped, |input| LayerInput::Batch(Value(input)));
        let gates = 0..recurrence.gates.len();
        found.uses.push(Use { layer: LayerOf::Input, gates, input });
        let ids = parameters.iter().map(|node| node.as_ref().map(|node| node.id));
        let trained = Trained { parameters: ids.collect() };
        match recording::is_active() {
            true => record_uses(found, &trained, &recurrence, size),
            false => register_uses(found, &trained, size, grads),
        }
    }
}

/// The nodes of the trained weights and biases.
struct Trained {
    /// Weights and biases for the input, then weights and biases for the hidden state.
    parameters: Vec<Option<NodeId>>,
}

impl Trained {
    /// Returns the nodes of weight and bias of gate `index`.
    fn of(&self, layer: LayerOf, index: usize) -> [Option<NodeId>; 2] {
        let first = if layer == LayerOf::Input { 0 } else { 2 * GATES };
        [first + index, first + GATES + index].map(|place| self.parameters[place])
    }
}

/// Registers the ordinary gradients.
fn register_uses<B: FusedOps>(
    found: OperandGrads<B>,
    trained: &Trained,
    size: usize,
    grads: &mut Gradients,
) {
    let OperandGrads { projected, product, uses, .. } = found;
    for one in uses {
        let products = match one.layer {
            LayerOf::Input => &projected,
            LayerOf::Hidden => product.as_ref().unwrap_or(&projected),
        };
        let nodes = one.gates.clone().map(|index| trained.of(one.layer, index));
        let (weights, biases): (Vec<_>, Vec<_>) =
            nodes.map(|[weight, bias]| (weight, bias)).unzip();
        let mut register = |nodes: Vec<Option<NodeId>>, grad: &dyn Fn(usize) -> Value<B>| {
            for (place, node) in nodes.into_iter().enumerate() {
                if let Some(node) = node {
                    grads.register::<B>(node, grad(place * size).0);
                }
            }
        };
        if weights.iter().any(Option::is_some)
            && let Some(grad) = one.weight_grad(products, size)
        {
            register(weights, &|start| grad.clone().narrow(1, start, size));
        }
        if biases.iter().any(Option::is_some) {
            let grad = one.bias_grad(products, size);
            register(biases, &|start| grad.clone().narrow(1, start, size).reshape([size]));
        }
    }
}

/// Passes on the records, one gate after another, so that tensors of one gate that are not kept are
/// freed before the next.
fn record_uses<B: FusedOps>(
    found: OperandGrads<B>,
    trained: &Trained,
    recurrence: &Recurrence,
    size: usize,
) {
    let OperandGrads { projected, product, uses, .. } = found;
    let any_weight =
        |one: &Use<B>| one.gates.clone().any(|index| trained.of(one.layer, index)[0].is_some());
    let uses: Vec<_> = uses
        .into_iter()
        .map(|one| {
            let input = any_weight(&one).then(|| one.input.by_example()).flatten();
            (one.layer, one.gates, input)
        })
        .collect();
    for index in 0..recurrence.gates.len() {
        let columns = index * size..(index + 1) * size;
        let of_input = projected.by_example(columns.clone());
        let of_hidden = product.as_ref().map(|product| product.by_example(columns));
        for (layer_of, gates, input) in &uses {
            let [weight, bias] = trained.of(*layer_of, index);
            if !gates.contains(&index) || (weight.is_none() && bias.is_none()) {
                continue;
            }
            let layers = recurrence.gates[index];
            let (layer, output_grad) = match layer_of {
                LayerOf::Input => (layers.input, &of_input),
                LayerOf::Hidden => (layers.hidden, of_hidden.as_ref().unwrap_or(&of_input)),
            };
            let input = input.clone().filter(|_| weight.is_some());
            record(layer, input, bias.is_some(), output_grad.clone());
        }
    }
}

/// Computes [`LayerOps::parametric_recurrent`](crate::ops::LayerOps::parametric_recurrent) under
/// autodiff.
pub(in crate::ops) fn recurrent<B: FusedOps, C: CheckpointStrategy>(
    operands: [FloatTensor<Autodiff<B, C>>; 3],
    parameters: [GateParameters<Autodiff<B, C>>; 2],
    recurrence: Recurrence,
) -> FloatTensor<Autodiff<B, C>> {
    let kept = recurrence.keeps_input.then(|| operands[0].clone());
    let parameters = parameters.map(GateParameters::into_parts);
    let of_gates = parameters.iter().flat_map(|(weights, biases)| weights.iter().chain(biases));
    let mut tensors = operands.iter().chain(of_gates);
    let nodes: [_; PARENTS] =
        std::array::from_fn(|_| tensors.next().expect("there are that many tensors").node());
    let inner = |tensor: FloatTensor<Autodiff<B, C>>| tensor.into_primitive();
    let parameters = parameters.map(|(weights, biases)| (weights.map(inner), biases.map(inner)));
    let operands = Operands::<B>::new(operands.map(inner), parameters, &recurrence);
    match Backward::<B, PARENTS>::prepare::<C>(RecurrentStep, nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let kept = kept.map(|input| prep.checkpoint(&input));
            let (output, trace) = operands.forward(&recurrence);
            prep.finish((trace, recurrence, kept), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(operands.forward(&recurrence).0),
    }
}
