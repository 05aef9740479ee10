//! Linear layers whose weight is packed and constant.
//!
//! Burn's product with an unpacked weight keeps that weight, as large as a dense one, until the
//! backward pass. This step keeps the packed weight and unpacks it again.

use burn::backend::tensor::{FloatTensor, QuantizedTensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use crate::ops::ParametricOps;

/// The backward step of a product with a packed weight; its only parent is the input.
#[derive(Debug)]
struct PackedLinearStep;

impl<B: ParametricOps> Backward<B, 1> for PackedLinearStep {
    type State = QuantizedTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        if let [Some(node)] = ops.parents {
            let grad = B::packed_linear_input_gradient(ops.state, output_grad);
            grads.register::<B>(node.id, grad);
        }
    }
}

/// Computes [`ParametricOps::packed_linear`] under autodiff.
pub(super) fn packed_linear<B: ParametricOps, C: CheckpointStrategy>(
    input: FloatTensor<Autodiff<B, C>>,
    weight: QuantizedTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let node = input.node();
    let input = input.into_primitive();
    match Backward::<B, 1>::prepare::<C>(PackedLinearStep, [node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = B::packed_linear(input, weight.clone());
            prep.finish(weight, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::packed_linear(input, weight)),
    }
}
