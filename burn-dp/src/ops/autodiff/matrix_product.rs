//! Products with a constant weight.

use burn::backend::tensor::FloatTensor;
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use crate::ops::{Bias, ParametricOps};

/// The backward step of a product; its only parent is the input.
#[derive(Debug)]
struct MatrixProductStep;

impl<B: ParametricOps> Backward<B, 1> for MatrixProductStep {
    /// The weight.
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        if let [Some(node)] = ops.parents {
            let grad = B::matrix_product_input_gradient(ops.state, output_grad);
            grads.register::<B>(node.id, grad);
        }
    }
}

/// Computes [`ParametricOps::matrix_product`] under autodiff.
pub(super) fn matrix_product<B: ParametricOps, C: CheckpointStrategy>(
    input: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Bias<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let node = input.node();
    let (input, weight) = (input.into_primitive(), weight.into_primitive());
    let bias = bias.into_inner();
    match Backward::<B, 1>::prepare::<C>(MatrixProductStep, [node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            prep.finish(weight.clone(), B::matrix_product(input, weight, bias))
        }
        OpsKind::UnTracked(prep) => prep.finish(B::matrix_product(input, weight, bias)),
    }
}
