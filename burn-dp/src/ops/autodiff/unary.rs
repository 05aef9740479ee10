//! Operations with one parent.

use std::fmt::Debug;

use burn::backend::{Backend, tensor::FloatTensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind},
};

/// The backward step of an operation with one parent: a function of what the forward pass keeps and
/// the gradient of the output.
#[derive(Debug)]
struct UnaryStep<S, T>(fn(S, T) -> T);

impl<B: Backend, S> Backward<B, 1> for UnaryStep<S, FloatTensor<B>>
where
    S: Clone + Debug + Send + 'static,
{
    type State = S;

    fn backward(self, ops: Ops<S, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        if let [Some(node)] = ops.parents {
            grads.register::<B>(node.id, (self.0)(ops.state, output_grad));
        }
    }
}

/// Returns `output` of an operation whose only parent is `input`.
///
/// - kept: what the backward step needs
/// - backward: returns the gradient of the input from `kept` and the gradient of the output
pub(super) fn unary<B: Backend, C: CheckpointStrategy, S>(
    input: NodeGuard,
    output: FloatTensor<B>,
    kept: S,
    backward: fn(S, FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>>
where
    S: Clone + Debug + Send + 'static,
{
    match Backward::<B, 1>::prepare::<C>(UnaryStep(backward), [input]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(kept, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
