//! Max pooling, with a backward step that keeps only the input.

use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{IntDType, Tensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

/// The windows of max pooling: height and width of each.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// On both sides.
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

/// Max pooling of a backend.
///
/// An implementation detail that is public because Burn's dispatch needs it to be.
#[doc(hidden)]
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Autodiff,
    Fusion: cfg(feature = "fusion"),
    Remote: cfg(feature = "remote"),
)]
pub trait PoolOps: Backend {
    /// Returns the largest value of each window.
    ///
    /// - input: `[batch_size, channels, height, width]`
    #[fusion(default)]
    fn window_maxima(input: FloatTensor<Self>, windows: Windows) -> FloatTensor<Self> {
        by_operations::<Self>(input, windows)
    }

    /// Returns the gradient of the input of [`window_maxima`](Self::window_maxima) from its input
    /// and the gradient of its output.
    #[fusion(default)]
    fn window_maxima_input_gradient(
        input: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        windows: Windows,
    ) -> FloatTensor<Self> {
        gradient_by_operations::<Self>(input, grad, windows)
    }
}

/// See [`PoolOps::window_maxima`].
pub(super) fn by_operations<B: Backend>(input: FloatTensor<B>, windows: Windows) -> FloatTensor<B> {
    let Windows { kernel, stride, padding, dilation } = windows;
    B::max_pool2d(input, kernel, stride, padding, dilation, false)
}

/// See [`PoolOps::window_maxima_input_gradient`].
pub(super) fn gradient_by_operations<B: Backend>(
    input: FloatTensor<B>,
    grad: FloatTensor<B>,
    windows: Windows,
) -> FloatTensor<B> {
    let Windows { kernel, stride, padding, dilation } = windows;
    let dtype = IntDType::I64;
    let (x, ceil) = (input.clone(), false);
    let indices =
        B::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil, dtype).indices;
    B::max_pool2d_with_indices_backward(
        input, kernel, stride, padding, dilation, ceil, grad, indices,
    )
    .x_grad
}

/// The backward step.
#[derive(Debug)]
struct MaximaStep;

impl<B: PoolOps> Backward<B, 1> for MaximaStep {
    /// The input.
    type State = (FloatTensor<B>, Windows);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (input, windows) = ops.state;
        if let [Some(node)] = ops.parents {
            grads.register::<B>(node.id, B::window_maxima_input_gradient(input, grad, windows));
        }
    }
}

impl<B: PoolOps, C: CheckpointStrategy> PoolOps for Autodiff<B, C> {
    fn window_maxima(input: FloatTensor<Self>, windows: Windows) -> FloatTensor<Self> {
        let node = input.node();
        let input = input.into_primitive();
        match MaximaStep.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let output = B::window_maxima(input.clone(), windows);
                prep.finish((input, windows), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::window_maxima(input, windows)),
        }
    }
}

/// Returns the largest value of each window, with the native kernel of the backend.
///
/// # Shapes
///
/// - input: `[batch_size, channels, height, width]`
pub(crate) fn window_maxima(input: Tensor<4>, windows: Windows) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::window_maxima(input.into_dispatch(), windows))
}
