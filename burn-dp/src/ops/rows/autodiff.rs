//! The backward steps.

use burn::backend::tensor::FloatTensor;
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::RowOps;

/// The backward step of a softmax.
#[derive(Debug)]
struct SoftmaxStep;

impl<B: RowOps> Backward<B, 1> for SoftmaxStep {
    /// The output.
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        if let [Some(node)] = ops.parents {
            grads.register::<B>(node.id, B::row_softmax_input_gradient(ops.state, grad));
        }
    }
}

/// The backward step of a normalization.
#[derive(Debug)]
struct NormalizeStep;

impl<B: RowOps> Backward<B, 1> for NormalizeStep {
    /// The outputs.
    type State = [FloatTensor<B>; 2];

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [output, scale] = ops.state;
        if let [Some(node)] = ops.parents {
            grads.register::<B>(node.id, B::row_normalize_input_gradient(output, scale, grad));
        }
    }
}

impl<B: RowOps, C: CheckpointStrategy> RowOps for Autodiff<B, C> {
    fn row_softmax(input: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = |input: FloatTensor<Self>| B::row_softmax(input.into_primitive());
        let node = input.node();
        match SoftmaxStep.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let output = output(input);
                prep.finish(output.clone(), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(output(input)),
        }
    }

    fn row_normalize(
        input: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let node = input.node();
        let (output, scale) = B::row_normalize(input.into_primitive(), epsilon);
        let constant = FloatTensor::<Self>::new(scale.clone());
        let output = match NormalizeStep.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish([output.clone(), scale], output),
            OpsKind::UnTracked(prep) => prep.finish(output),
        };
        (output, constant)
    }
}
