//! Convolutions for which their parameters are constants.
//!
//! Burn's own keep their input, for the gradient of the weight. That is the affair of the tap here,
//! which keeps it only where the weight is trained.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::{Bias, ParametricOps, Primitive};

impl Primitive {
    /// Burn's convolution of that name; `input` as it is for other primitives.
    pub(super) fn convolution<B: Backend>(
        &self,
        input: FloatTensor<B>,
        weight: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match self.clone() {
            Self::Conv1d(options) => B::conv1d(input, weight, bias, options),
            Self::Conv2d(options) => B::conv2d(input, weight, bias, options),
            Self::Conv3d(options) => B::conv3d(input, weight, bias, options),
            Self::ConvTranspose1d(options) => B::conv_transpose1d(input, weight, bias, options),
            Self::ConvTranspose2d(options) => B::conv_transpose2d(input, weight, bias, options),
            Self::ConvTranspose3d(options) => B::conv_transpose3d(input, weight, bias, options),
            _ => input,
        }
    }

    /// The gradient of the input of a convolution, whose shape is `input`.
    fn input_gradient<B: Backend>(
        &self,
        input: Shape,
        weight: FloatTensor<B>,
        grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        // Burn's gradients ask for the input, of which they use the shape.
        let input = || B::float_empty(input, &grad.device(), grad.dtype().into());
        match self.clone() {
            Self::Conv1d(options) => B::conv1d_x_backward(input(), weight, grad, options),
            Self::Conv2d(options) => B::conv2d_x_backward(input(), weight, grad, options),
            Self::Conv3d(options) => B::conv3d_x_backward(input(), weight, grad, options),
            Self::ConvTranspose1d(options) => B::conv_transpose1d_x_backward(weight, grad, options),
            Self::ConvTranspose2d(options) => B::conv_transpose2d_x_backward(weight, grad, options),
            Self::ConvTranspose3d(options) => B::conv_transpose3d_x_backward(weight, grad, options),
            _ => grad,
        }
    }
}

/// The parent is the input.
#[derive(Debug)]
struct ConvolutionStep;

impl<B: Backend> Backward<B, 1> for ConvolutionStep {
    type State = (FloatTensor<B>, Shape, Primitive);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_grad = grads.consume::<B>(&ops.node);
        let (weight, input, primitive) = ops.state;
        if let [Some(node)] = ops.parents {
            let grad = primitive.input_gradient::<B>(input, weight, output_grad);
            grads.register::<B>(node.id, grad);
        }
    }
}

/// See [`ParametricOps::convolution`].
pub(super) fn convolution<B: ParametricOps, C: CheckpointStrategy>(
    input: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Bias<Autodiff<B, C>>,
    primitive: Primitive,
) -> FloatTensor<Autodiff<B, C>> {
    let node = input.node();
    let (input, weight) = (input.into_primitive(), weight.into_primitive());
    let bias = match bias.into_option() {
        Some(bias) => Bias::Present(bias.into_primitive()),
        None => Bias::Absent,
    };
    match Backward::<B, 1>::prepare::<C>(ConvolutionStep, [node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let state = (weight.clone(), input.shape(), primitive.clone());
            prep.finish(state, B::convolution(input, weight, bias, primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(B::convolution(input, weight, bias, primitive)),
    }
}
