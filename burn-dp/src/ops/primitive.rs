use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::module::ParamId;
use burn::tensor::Shape;
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, DeformConvOptions};

use super::{Kept, Patches};

/// Which parameters a primitive was called with.
#[derive(Clone, Copy, Debug)]
pub struct LayerIds {
    pub(crate) weight: ParamId,
    pub(crate) bias: Option<ParamId>,
}

/// How the output of a layer depends on its parameters.
///
/// Of each, the forward pass keeps what the gradient of the weight follows from besides the
/// gradient of the output; the shapes of both are those of Burn's operation of the same name.
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
        /// Only the negative values of the input are scaled.
        negative: bool,
    },
    /// The weight itself, repeated over the batch; keeps nothing.
    Repeat,
    /// A convolution; keeps the input.
    Conv1d(ConvOptions<1>),
    /// A convolution; keeps the input.
    Conv2d(ConvOptions<2>),
    /// A convolution; keeps the input.
    Conv3d(ConvOptions<3>),
    /// A transposed convolution; keeps the input.
    ConvTranspose1d(ConvTransposeOptions<1>),
    /// A transposed convolution; keeps the input.
    ConvTranspose2d(ConvTransposeOptions<2>),
    /// A transposed convolution; keeps the input.
    ConvTranspose3d(ConvTransposeOptions<3>),
    /// A deformable convolution; keeps input, offset and, if there is one, mask.
    DeformConv2d(DeformConvOptions<2>),
}

impl Primitive {
    /// Axis of the output that belongs to the bias.
    fn bias_axis(&self, rank: usize) -> Option<usize> {
        match self {
            Self::Linear | Self::TransposedLinear => Some(rank - 1),
            Self::Scale { axis, .. } => *axis,
            Self::Embedding | Self::Repeat => None,
            _ => Some(1),
        }
    }

    /// The shape in which the rules expect a recorded tensor that has `shape`.
    ///
    /// - linear, embedding: `[batch_size, positions, features]`
    /// - scale: `[batch_size, outer, parameters, inner]`
    /// - repeat: `[batch_size, values]`
    /// - convolutions: as it is
    pub(crate) fn layout(&self, shape: Shape) -> Shape {
        let rank = shape.num_dims();
        match self {
            Self::Linear | Self::TransposedLinear | Self::Embedding => {
                let positions = shape.iter().skip(1).take(rank - 2).product();
                Shape::new([shape[0], positions, shape[rank - 1]])
            }
            Self::Scale { axis, .. } => Shape::new(four_axes(&shape, *axis)),
            Self::Repeat => Shape::new([shape[0], shape.iter().skip(1).product()]),
            _ => shape,
        }
    }

    /// im2col of a convolution whose weight and pixels have these shapes; the pixels are the output
    /// of a convolution and the input of a transposed one. `None` for other primitives.
    pub(crate) fn patches(&self, weight: &Shape, pixels: &Shape) -> Option<Patches> {
        fn last<const N: usize>(shape: &Shape) -> [usize; N] {
            std::array::from_fn(|axis| shape[axis + 2])
        }
        // The patches of a transposed convolution are those of the convolution that it transposes.
        fn transposed<const N: usize>(options: &ConvTransposeOptions<N>) -> ConvOptions<N> {
            ConvOptions::new(options.stride, options.padding, options.dilation, options.groups)
        }
        Some(match self {
            Self::Conv1d(options) => Patches::new(last(weight), last(pixels), options),
            Self::Conv2d(options) => Patches::new(last(weight), last(pixels), options),
            Self::Conv3d(options) => Patches::new(last(weight), last(pixels), options),
            Self::ConvTranspose1d(options) => {
                Patches::new(last(weight), last(pixels), &transposed(options))
            }
            Self::ConvTranspose2d(options) => {
                Patches::new(last(weight), last(pixels), &transposed(options))
            }
            Self::ConvTranspose3d(options) => {
                Patches::new(last(weight), last(pixels), &transposed(options))
            }
            _ => return None,
        })
    }

    /// The ordinary gradient of the weight, summed over the batch, in the shape `weight`.
    pub(crate) fn weight_gradient<B: Backend>(
        &self,
        kept: Kept<B>,
        weight: Shape,
        output_grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        // Burn's gradients ask for the weight, of which they use the shape.
        let shape_of = |like: &FloatTensor<B>| {
            B::float_empty(weight.clone(), &like.device(), like.dtype().into())
        };
        let grad = output_grad;
        match self {
            Self::Linear => B::linear_weight_backward(kept.one(), grad),
            Self::TransposedLinear => B::linear_weight_backward(grad, kept.one()),
            Self::Embedding => B::embedding_backward(shape_of(&grad), grad, kept.ids()),
            Self::Scale { axis, negative } => {
                let input = kept.one();
                let input = match negative {
                    true => B::float_clamp_max(input, 0.0f32.into()),
                    false => input,
                };
                let product = B::float_mul(input, grad);
                B::float_reshape(sum_over_examples::<B>(product, *axis), weight)
            }
            Self::Repeat => B::float_reshape(B::float_sum_dim(grad, 0), weight),
            Self::Conv1d(options) => {
                B::conv1d_weight_backward(kept.one(), shape_of(&grad), grad, options.clone())
            }
            Self::Conv2d(options) => {
                B::conv2d_weight_backward(kept.one(), shape_of(&grad), grad, options.clone())
            }
            Self::Conv3d(options) => {
                B::conv3d_weight_backward(kept.one(), shape_of(&grad), grad, options.clone())
            }
            Self::ConvTranspose1d(options) => B::conv_transpose1d_weight_backward(
                kept.one(),
                shape_of(&grad),
                grad,
                options.clone(),
            ),
            Self::ConvTranspose2d(options) => B::conv_transpose2d_weight_backward(
                kept.one(),
                shape_of(&grad),
                grad,
                options.clone(),
            ),
            Self::ConvTranspose3d(options) => B::conv_transpose3d_weight_backward(
                kept.one(),
                shape_of(&grad),
                grad,
                options.clone(),
            ),
            Self::DeformConv2d(options) => {
                let (input, offset, mask) = kept.deformed();
                let weight = B::float_zeros(weight, &grad.device(), grad.dtype().into());
                B::deform_conv2d_backward(input, offset, weight, mask, None, grad, options.clone())
                    .weight_grad
            }
        }
    }

    /// The ordinary gradient of the bias, summed over the batch: `[parameters]`.
    pub(crate) fn bias_gradient<B: Backend>(&self, output_grad: FloatTensor<B>) -> FloatTensor<B> {
        let axis = self.bias_axis(output_grad.shape().num_dims());
        sum_over_examples::<B>(output_grad, axis)
    }
}

/// Sums over all axes but one: `[parameters]`.
fn sum_over_examples<B: Backend>(tensor: FloatTensor<B>, axis: Option<usize>) -> FloatTensor<B> {
    let [batch_size, outer, parameters, inner] = four_axes(&tensor.shape(), axis);
    let rows = Shape::new([batch_size * outer, parameters, inner]);
    let mut sum = B::float_reshape(tensor, rows);
    if inner > 1 {
        sum = B::float_sum_dim(sum, 2);
    }
    B::float_reshape(B::float_sum_dim(sum, 0), Shape::new([parameters]))
}

/// `[batch_size, outer, parameters, inner]`: what lies before and behind the axis of the
/// parameters.
fn four_axes(shape: &Shape, axis: Option<usize>) -> [usize; 4] {
    let product = |from: usize, to: usize| shape.iter().take(to).skip(from).product::<usize>();
    let rank = shape.num_dims();
    match axis {
        Some(axis) => [shape[0], product(1, axis), shape[axis], product(axis + 1, rank)],
        None => [shape[0], 1, 1, product(1, rank)],
    }
}
