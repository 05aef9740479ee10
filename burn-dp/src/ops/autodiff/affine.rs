//! Scale and shift by constants.

use burn::backend::tensor::FloatTensor;
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use crate::ops::{Bias, ParametricOps};

/// The backward step of a scale; its only parent is the input.
#[derive(Debug)]
struct AffineStep;

impl<B: ParametricOps> Backward<B, 1> for AffineStep {
    /// The weight and its axis.
    type State = (FloatTensor<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        let (weight, axis) = ops.state;
        if let [Some(node)] = ops.parents {
            grads.register::<B>(node.id, B::affine(output_grad, weight, Bias::Absent, axis));
        }
    }
}

/// Computes [`ParametricOps::affine`] under autodiff.
pub(super) fn affine<B: ParametricOps, C: CheckpointStrategy>(
    input: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Bias<Autodiff<B, C>>,
    axis: usize,
) -> FloatTensor<Autodiff<B, C>> {
    let node = input.node();
    let (input, weight) = (input.into_primitive(), weight.into_primitive());
    let bias = bias.into_inner();
    match Backward::<B, 1>::prepare::<C>(AffineStep, [node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            prep.finish((weight.clone(), axis), B::affine(input, weight, bias, axis))
        }
        OpsKind::UnTracked(prep) => prep.finish(B::affine(input, weight, bias, axis)),
    }
}
