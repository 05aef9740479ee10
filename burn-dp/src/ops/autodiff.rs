//! The hand-written backward steps.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{Shape, ops::ConvOptions};
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::{Bias, LayerIds, LayerRule, ParametricOps, Slot};
use crate::grads::recording::{self, RawRecord};

/// What a backward step needs of the forward pass.
///
/// The input is kept for the gradient of the weight and the weight for the gradient of the input,
/// each only where that gradient is wanted.
#[derive(Clone, Debug)]
struct State {
    input: Option<NodeId>,
    weight: Option<NodeId>,
    bias: Option<NodeId>,
    layer: LayerIds,
    rule: LayerRule,
}

/// One backward step for all primitives: parents are input, weight and, if there is one, bias.
#[derive(Debug)]
struct ParametricStep;

impl<B: ParametricOps, const N: usize> Backward<B, N> for ParametricStep {
    type State = State;

    fn backward(self, ops: Ops<State, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        let State { input, weight, bias, layer, rule } = ops.state;
        let mut retrieve = |id: Option<NodeId>| {
            id.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id))
        };
        let (input, weight, bias) = (retrieve(input), retrieve(weight), retrieve(bias));

        let mut parents = ops.parents.into_iter();
        let mut parent = || parents.next().flatten();
        let (input_node, weight_node, bias_node) = (parent(), parent(), parent());

        if let Some(node) = input_node {
            let grad = input_backward::<B>(&rule, &input, &weight, &output_grad);
            grads.register::<B>(node.id, grad);
        }
        if weight_node.is_none() && bias_node.is_none() {
            return;
        }

        if recording::is_active() {
            let lay_out = |tensor| lay_out::<B>(&rule, tensor);
            recording::push(RawRecord {
                layer,
                weight: weight_node.is_some(),
                bias: bias_node.is_some(),
                input: weight_node.and(input).map(lay_out).map(Slot::new),
                output_grad: Slot::new(lay_out(output_grad)),
                rule,
            });
            return;
        }

        if let Some(node) = weight_node {
            let grad = weight_backward::<B>(&rule, input.clone(), weight, &output_grad);
            grads.register::<B>(node.id, grad);
        }
        if let Some(node) = bias_node {
            let grad = bias_backward::<B>(&rule, input, bias, output_grad);
            grads.register::<B>(node.id, grad);
        }
    }
}

/// Brings a tensor to the rank that its rule works on: `[batch_size, positions, features]` for a
/// linear layer, whatever the rank of its input.
fn lay_out<B: Backend>(rule: &LayerRule, tensor: FloatTensor<B>) -> FloatTensor<B> {
    match rule {
        LayerRule::Linear => {
            let shape = tensor.shape();
            let (batch, features) = (shape[0], shape[shape.num_dims() - 1]);
            let positions = shape.iter().skip(1).take(shape.num_dims() - 2).product();
            B::float_reshape(tensor, Shape::new([batch, positions, features]))
        }
        LayerRule::Conv2d { .. } => tensor,
    }
}

const KEPT: &str = "the forward pass keeps what its backward step needs";

fn input_backward<B: Backend>(
    rule: &LayerRule,
    input: &Option<FloatTensor<B>>,
    weight: &Option<FloatTensor<B>>,
    output_grad: &FloatTensor<B>,
) -> FloatTensor<B> {
    let weight = weight.clone().expect(KEPT);
    match rule {
        LayerRule::Linear => B::linear_x_backward(weight, output_grad.clone()),
        LayerRule::Conv2d { options, .. } => B::conv2d_x_backward(
            input.clone().expect(KEPT),
            weight,
            output_grad.clone(),
            options.clone(),
        ),
    }
}

fn weight_backward<B: Backend>(
    rule: &LayerRule,
    input: Option<FloatTensor<B>>,
    weight: Option<FloatTensor<B>>,
    output_grad: &FloatTensor<B>,
) -> FloatTensor<B> {
    let input = input.expect(KEPT);
    match rule {
        LayerRule::Linear => B::linear_weight_backward(input, output_grad.clone()),
        LayerRule::Conv2d { options, .. } => B::conv2d_weight_backward(
            input,
            weight.expect(KEPT),
            output_grad.clone(),
            options.clone(),
        ),
    }
}

fn bias_backward<B: Backend>(
    rule: &LayerRule,
    input: Option<FloatTensor<B>>,
    bias: Option<FloatTensor<B>>,
    output_grad: FloatTensor<B>,
) -> FloatTensor<B> {
    match rule {
        LayerRule::Linear => B::linear_bias_backward(output_grad),
        LayerRule::Conv2d { .. } => {
            B::conv2d_bias_backward(input.expect(KEPT), bias.expect(KEPT), output_grad)
        }
    }
}

/// Registers the step of one primitive; `forward` computes its output on the inner backend.
fn register<B: ParametricOps, C: CheckpointStrategy>(
    input: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Option<FloatTensor<Autodiff<B, C>>>,
    layer: LayerIds,
    rule: LayerRule,
    forward: impl FnOnce(FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>) -> FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    // A convolution's gradients all ask for its input and weight, for their shapes at least.
    let shapes = matches!(rule, LayerRule::Conv2d { .. });
    let bias_tracked = bias.as_ref().is_some_and(|bias| bias.is_tracked());
    let keep_input = weight.is_tracked() || shapes;
    let keep_weight = input.is_tracked() || shapes;

    match bias {
        Some(bias) => {
            let nodes = [input.node(), weight.node(), bias.node()];
            match Backward::<B, 3>::prepare::<C>(ParametricStep, nodes).compute_bound().stateful() {
                OpsKind::Tracked(mut prep) => {
                    let state = State {
                        input: keep_input.then(|| prep.checkpoint(&input)),
                        weight: keep_weight.then(|| prep.checkpoint(&weight)),
                        bias: (shapes && bias_tracked).then(|| prep.checkpoint(&bias)),
                        layer,
                        rule,
                    };
                    let output = forward(
                        input.into_primitive(),
                        weight.into_primitive(),
                        Some(bias.into_primitive()),
                    );
                    prep.finish(state, output)
                }
                OpsKind::UnTracked(prep) => prep.finish(forward(
                    input.into_primitive(),
                    weight.into_primitive(),
                    Some(bias.into_primitive()),
                )),
            }
        }
        None => {
            let nodes = [input.node(), weight.node()];
            match Backward::<B, 2>::prepare::<C>(ParametricStep, nodes).compute_bound().stateful() {
                OpsKind::Tracked(mut prep) => {
                    let state = State {
                        input: keep_input.then(|| prep.checkpoint(&input)),
                        weight: keep_weight.then(|| prep.checkpoint(&weight)),
                        bias: None,
                        layer,
                        rule,
                    };
                    let output = forward(input.into_primitive(), weight.into_primitive(), None);
                    prep.finish(state, output)
                }
                OpsKind::UnTracked(prep) => {
                    prep.finish(forward(input.into_primitive(), weight.into_primitive(), None))
                }
            }
        }
    }
}

impl<B: ParametricOps, C: CheckpointStrategy> ParametricOps for Autodiff<B, C> {
    fn parametric_linear(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        layer: LayerIds,
    ) -> FloatTensor<Self> {
        register::<B, C>(input, weight, bias.into_option(), layer, LayerRule::Linear, B::linear)
    }

    fn parametric_conv2d(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        options: ConvOptions<2>,
        layer: LayerIds,
    ) -> FloatTensor<Self> {
        let rule = LayerRule::Conv2d { weight: weight.shape().dims(), options: options.clone() };
        register::<B, C>(input, weight, bias.into_option(), layer, rule, |input, weight, bias| {
            B::conv2d(input, weight, bias, options)
        })
    }
}
