//! Convolutions whose parameters are constants.
//!
//! Burn's own convolution keeps its input for the gradient of the weight. Here the tap keeps the
//! input, and only if the weight is trained.

use burn::backend::{TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use crate::ops::{Bias, Convolution, ParametricOps};

/// The backward step of a convolution; its only parent is the input.
#[derive(Debug)]
struct ConvolutionStep;

impl<B: ParametricOps> Backward<B, 1> for ConvolutionStep {
    type State = (FloatTensor<B>, Shape, Convolution);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        let (weight, input, convolution) = ops.state;
        if let [Some(node)] = ops.parents {
            let grad = B::convolution_input_gradient(input, weight, output_grad, convolution);
            grads.register::<B>(node.id, grad);
        }
    }
}

/// Computes [`ParametricOps::convolution`] under autodiff.
pub(super) fn convolution<B: ParametricOps, C: CheckpointStrategy>(
    input: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Bias<Autodiff<B, C>>,
    convolution: Convolution,
) -> FloatTensor<Autodiff<B, C>> {
    let node = input.node();
    let (input, weight) = (input.into_primitive(), weight.into_primitive());
    let bias = bias.into_inner();
    match Backward::<B, 1>::prepare::<C>(ConvolutionStep, [node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let state = (weight.clone(), input.shape(), convolution.clone());
            prep.finish(state, B::convolution(input, weight, bias, convolution))
        }
        OpsKind::UnTracked(prep) => prep.finish(B::convolution(input, weight, bias, convolution)),
    }
}
