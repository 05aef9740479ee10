use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::module::ParamId;
use burn::tensor::Shape;
use burn::tensor::ops::DeformConvOptions;

use super::primitives::axes::sum_over_examples;
use super::primitives::{Convolution, conv, embedding, linear, parameter, scale, standardized};
use super::{Kept, Slot};

/// The parameters that a primitive was called with.
#[derive(Clone, Copy, Debug)]
pub struct LayerIds {
    pub(crate) weight: ParamId,
    pub(crate) bias: Option<ParamId>,
}

/// How the output of a layer depends on its parameters.
///
/// The gradient of the weight is computed from the gradient of the output and the tensors that the
/// forward pass keeps. The shapes of both are documented for Burn's operation of the same name.
#[derive(Clone, Debug)]
pub enum Primitive {
    /// `output = input @ weight + bias`; keeps the input.
    Linear,
    /// `output = input @ weightᵀ + bias`; keeps the input.
    TransposedLinear,
    /// `output[i, t] = weight[ids[i, t]]`; keeps the ids, `[batch_size, positions]`.
    Embedding,
    /// `output = input ∘ weight + bias`, both along one axis; keeps the input.
    Scale {
        /// Axis of the parameters; `None` for a weight of one value.
        axis: Option<usize>,
        /// Whether only the negative values of the input are scaled.
        negative: bool,
    },
    /// The weight itself, repeated over the batch; keeps nothing.
    Repeat,
    /// Random values that belong to no unit, which a private backward pass rejects. Its weight
    /// stands for the randomness and is not a parameter of the model; keeps nothing.
    Unkeyed,
    /// A convolution, which may be transposed; keeps the input.
    Convolution {
        /// The convolution and its options.
        convolution: Convolution,
        /// Shape of the kernel, if the parameter stores it in another one (a factor of an adapter).
        kernel: Option<Shape>,
    },
    /// A convolution whose weight is standardized; keeps the input and the weight as it is stored.
    StandardizedConvolution {
        /// The convolution and its options.
        convolution: Convolution,
        /// Minimum sum of squares that a kernel is divided by.
        epsilon: f64,
    },
    /// A deformable convolution; keeps the input, the offset and, if there is one, the mask.
    DeformConv2d(DeformConvOptions<2>),
}

impl Primitive {
    /// Reshapes a recorded tensor to the layout that its rule expects, and stores it.
    ///
    /// - linear, embedding: `[batch_size, positions, features]`
    /// - scale: `[batch_size, outer, parameters, inner]`
    /// - repeat, unkeyed: `[batch_size, values]`
    /// - convolutions: unchanged
    pub(super) fn lay_out<B: Backend>(&self, tensor: FloatTensor<B>) -> Slot {
        let shape = tensor.shape();
        let shape = match self {
            Self::Linear | Self::TransposedLinear => linear::layout(&shape),
            Self::Embedding => embedding::layout(&shape),
            Self::Scale { axis, .. } => scale::layout(&shape, *axis),
            Self::Repeat | Self::Unkeyed => parameter::layout(&shape),
            Self::Convolution { .. }
            | Self::StandardizedConvolution { .. }
            | Self::DeformConv2d(_) => shape,
        };
        Slot::new(B::float_reshape(tensor, shape))
    }

    /// Returns the shape in which the operation uses a weight that is stored as `stored`.
    pub(super) fn weight_shape(&self, stored: &Shape) -> Shape {
        match self {
            Self::Convolution { kernel: Some(kernel), .. } => kernel.clone(),
            _ => stored.clone(),
        }
    }

    /// Returns the ordinary gradient of the weight, summed over the batch, in the shape `weight`.
    pub(super) fn weight_gradient<B: Backend>(
        &self,
        kept: Kept<B>,
        weight: Shape,
        output_grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let grad = output_grad;
        match self {
            Self::Linear => linear::weight_gradient::<B>(kept, grad),
            Self::TransposedLinear => linear::transposed_weight_gradient::<B>(kept, grad),
            Self::Embedding => embedding::weight_gradient::<B>(kept, weight, grad),
            Self::Scale { axis, negative } => {
                scale::weight_gradient::<B>(kept, weight, grad, *axis, *negative)
            }
            Self::Repeat => parameter::weight_gradient::<B>(weight, grad),
            // It is never read.
            Self::Unkeyed => B::float_sum(grad),
            Self::Convolution { convolution, .. } => {
                convolution.weight_gradient::<B>(kept, weight, grad)
            }
            Self::StandardizedConvolution { convolution, epsilon } => {
                let [input, stored] = kept.two();
                let values = Shape::new([1, weight.num_elements()]);
                let grad = convolution.weight_gradient::<B>(Kept::One(input), weight.clone(), grad);
                let grad = B::float_reshape(grad, values);
                B::float_reshape(standardized::gradients::<B>(grad, stored, *epsilon), weight)
            }
            Self::DeformConv2d(options) => {
                conv::deformable_weight_gradient::<B>(kept, weight, grad, options)
            }
        }
    }

    /// Returns the [gradient of the weight](Self::weight_gradient) as one row of values.
    pub(super) fn flat_weight_gradient<B: Backend>(
        &self,
        kept: Kept<B>,
        weight: Shape,
        output_grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let values = Shape::new([weight.num_elements()]);
        B::float_reshape(self.weight_gradient::<B>(kept, weight, output_grad), values)
    }

    /// Returns the axis of the bias in an output of `rank` axes.
    pub(super) fn bias_axis(&self, rank: usize) -> Option<usize> {
        match self {
            Self::Linear | Self::TransposedLinear => Some(rank - 1),
            Self::Scale { axis, .. } => *axis,
            Self::Convolution { .. }
            | Self::StandardizedConvolution { .. }
            | Self::DeformConv2d(_) => Some(conv::BIAS_AXIS),
            Self::Embedding | Self::Repeat | Self::Unkeyed => None,
        }
    }

    /// Returns the ordinary gradient of the bias, summed over the batch: `[parameters]`.
    pub(super) fn bias_gradient<B: Backend>(&self, output_grad: FloatTensor<B>) -> FloatTensor<B> {
        let axis = self.bias_axis(output_grad.shape().num_dims());
        sum_over_examples::<B>(output_grad, axis)
    }
}
