//! The tap, whose backward step passes on a record or computes the ordinary gradients.

use burn::backend::{
    Backend, TensorMetadata,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::Shape;
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind},
};

use crate::ops::recording::{self, RawRecord};
use crate::ops::{Bias, Kept, LayerIds, ParametricOps, Primitive, Slot};

/// The tensors that the forward pass keeps for the backward step.
#[derive(Clone, Debug)]
struct State<B: Backend> {
    kept: Vec<NodeId>,
    ids: Option<IntTensor<B>>,
    weight: Shape,
    layer: LayerIds,
    primitive: Primitive,
}

/// The backward step of a tap; its parents are the tapped output, the weight and, if there is one,
/// the bias.
///
/// The gradient of the output passes through to the operation that computed it, for which the
/// parameters are constants. The gradients of the parameters are computed here, or recorded.
#[derive(Debug)]
struct TapStep;

impl<B: ParametricOps, const N: usize> Backward<B, N> for TapStep {
    type State = State<B>;

    fn backward(
        self,
        ops: Ops<State<B>, N>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let output_grad = grads.consume::<B>(&ops.node);
        let State { kept, ids, weight, layer, primitive } = ops.state;
        let kept: Vec<_> = kept
            .into_iter()
            .map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id))
            .collect();

        let mut parents = ops.parents.into_iter();
        let mut parent = || parents.next().flatten();
        let (output_node, weight_node, bias_node) = (parent(), parent(), parent());

        if let Some(node) = output_node {
            grads.register::<B>(node.id, output_grad.clone());
        }
        if weight_node.is_none() && bias_node.is_none() {
            return;
        }

        if recording::is_active() {
            recording::push(RawRecord {
                layer,
                weight: weight_node.map(|_| primitive.weight_shape(&weight)),
                bias: bias_node.is_some(),
                kept: kept.into_iter().map(|tensor| primitive.lay_out::<B>(tensor)).collect(),
                ids: ids.map(Slot::new),
                output_grad: primitive.lay_out::<B>(output_grad),
                primitive,
            });
            return;
        }

        if let Some(node) = bias_node {
            grads.register::<B>(node.id, B::bias_gradient(output_grad.clone(), primitive.clone()));
        }
        if let Some(node) = weight_node {
            let kept = Kept::from_parts(kept, ids);
            let used = primitive.weight_shape(&weight);
            let grad = B::weight_gradient(output_grad, kept, used, primitive);
            grads.register::<B>(node.id, B::float_reshape(grad, weight));
        }
    }
}

/// Registers the step; the tensors in `kept` belong to the graph.
fn register<B: ParametricOps, C: CheckpointStrategy, const N: usize>(
    nodes: [NodeGuard; N],
    output: FloatTensor<B>,
    weight: Shape,
    kept: Kept<Autodiff<B, C>>,
    layer: LayerIds,
    primitive: Primitive,
) -> FloatTensor<Autodiff<B, C>> {
    match Backward::<B, N>::prepare::<C>(TapStep, nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let (floats, ids) = kept.into_parts();
            let kept = floats.iter().map(|tensor| prep.checkpoint(tensor)).collect();
            prep.finish(State { kept, ids, weight, layer, primitive }, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

/// Computes [`ParametricOps::tap`] under autodiff.
pub(super) fn tap<B: ParametricOps, C: CheckpointStrategy>(
    output: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Bias<Autodiff<B, C>>,
    kept: Kept<Autodiff<B, C>>,
    layer: LayerIds,
    primitive: Primitive,
) -> FloatTensor<Autodiff<B, C>> {
    let shape = weight.shape();
    let (output_node, weight_node) = (output.node(), weight.node());
    let output = output.into_primitive();
    match bias.into_option() {
        Some(bias) => {
            let nodes = [output_node, weight_node, bias.node()];
            register::<B, C, 3>(nodes, output, shape, kept, layer, primitive)
        }
        None => {
            let nodes = [output_node, weight_node];
            register::<B, C, 2>(nodes, output, shape, kept, layer, primitive)
        }
    }
}
