//! Convolutions of one to three dimensions, ordinary, transposed and deformable.

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, DeformConvOptions};

use super::Patches;
use crate::ops::Kept;

/// Axis of the channels in the output of every convolution.
pub(in crate::ops) const BIAS_AXIS: usize = 1;

/// A convolution of Burn and its options.
#[derive(Clone, Debug)]
pub enum Convolution {
    /// [`conv1d`](burn::tensor::module::conv1d).
    Conv1d(ConvOptions<1>),
    /// [`conv2d`](burn::tensor::module::conv2d).
    Conv2d(ConvOptions<2>),
    /// [`conv3d`](burn::tensor::module::conv3d).
    Conv3d(ConvOptions<3>),
    /// [`conv_transpose1d`](burn::tensor::module::conv_transpose1d).
    Transpose1d(ConvTransposeOptions<1>),
    /// [`conv_transpose2d`](burn::tensor::module::conv_transpose2d).
    Transpose2d(ConvTransposeOptions<2>),
    /// [`conv_transpose3d`](burn::tensor::module::conv_transpose3d).
    Transpose3d(ConvTransposeOptions<3>),
}

impl Convolution {
    /// Whether the kernel slides over the output instead of the input.
    pub(crate) fn is_transposed(&self) -> bool {
        matches!(self, Self::Transpose1d(_) | Self::Transpose2d(_) | Self::Transpose3d(_))
    }

    /// Applies Burn's convolution.
    pub(in crate::ops) fn forward<B: Backend>(
        self,
        input: FloatTensor<B>,
        weight: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match self {
            Self::Conv1d(options) => B::conv1d(input, weight, bias, options),
            Self::Conv2d(options) => B::conv2d(input, weight, bias, options),
            Self::Conv3d(options) => B::conv3d(input, weight, bias, options),
            Self::Transpose1d(options) => B::conv_transpose1d(input, weight, bias, options),
            Self::Transpose2d(options) => B::conv_transpose2d(input, weight, bias, options),
            Self::Transpose3d(options) => B::conv_transpose3d(input, weight, bias, options),
        }
    }

    /// Returns the gradient of an input of shape `input`.
    pub(in crate::ops) fn input_gradient<B: Backend>(
        self,
        input: Shape,
        weight: FloatTensor<B>,
        grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        // Burn's gradients ask for the input, but use only its shape.
        let input = || B::float_empty(input, &grad.device(), grad.dtype().into());
        match self {
            Self::Conv1d(options) => B::conv1d_x_backward(input(), weight, grad, options),
            Self::Conv2d(options) => B::conv2d_x_backward(input(), weight, grad, options),
            Self::Conv3d(options) => B::conv3d_x_backward(input(), weight, grad, options),
            Self::Transpose1d(options) => B::conv_transpose1d_x_backward(weight, grad, options),
            Self::Transpose2d(options) => B::conv_transpose2d_x_backward(weight, grad, options),
            Self::Transpose3d(options) => B::conv_transpose3d_x_backward(weight, grad, options),
        }
    }

    /// Returns the gradient of a weight of shape `weight`, summed over the batch.
    pub(in crate::ops) fn weight_gradient<B: Backend>(
        &self,
        kept: Kept<B>,
        weight: Shape,
        grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        // Burn's gradients ask for the weight, but use only its shape.
        let weight = B::float_empty(weight, &grad.device(), grad.dtype().into());
        let input = kept.one();
        match self.clone() {
            Self::Conv1d(options) => B::conv1d_weight_backward(input, weight, grad, options),
            Self::Conv2d(options) => B::conv2d_weight_backward(input, weight, grad, options),
            Self::Conv3d(options) => B::conv3d_weight_backward(input, weight, grad, options),
            Self::Transpose1d(options) => {
                B::conv_transpose1d_weight_backward(input, weight, grad, options)
            }
            Self::Transpose2d(options) => {
                B::conv_transpose2d_weight_backward(input, weight, grad, options)
            }
            Self::Transpose3d(options) => {
                B::conv_transpose3d_weight_backward(input, weight, grad, options)
            }
        }
    }

    /// Returns the im2col of a convolution whose weight and pixels have these shapes.
    ///
    /// The pixels are paired with the positions of the kernel: the output of a convolution, the
    /// input of a transposed one.
    pub(crate) fn patches(&self, weight: &Shape, pixels: &Shape) -> Patches {
        fn last<const N: usize>(shape: &Shape) -> [usize; N] {
            std::array::from_fn(|axis| shape[axis + 2])
        }
        fn new<const N: usize>(
            weight: &Shape,
            pixels: &Shape,
            options: &ConvOptions<N>,
        ) -> Patches {
            Patches::new(last(weight), last(pixels), options)
        }
        // A transposed convolution has the patches of the convolution that it transposes.
        fn transposed<const N: usize>(options: &ConvTransposeOptions<N>) -> ConvOptions<N> {
            ConvOptions::new(options.stride, options.padding, options.dilation, options.groups)
        }
        match self {
            Self::Conv1d(options) => new(weight, pixels, options),
            Self::Conv2d(options) => new(weight, pixels, options),
            Self::Conv3d(options) => new(weight, pixels, options),
            Self::Transpose1d(options) => new(weight, pixels, &transposed(options)),
            Self::Transpose2d(options) => new(weight, pixels, &transposed(options)),
            Self::Transpose3d(options) => new(weight, pixels, &transposed(options)),
        }
    }
}

/// Returns the gradient of the weight of a deformable convolution, summed over the batch.
pub(in crate::ops) fn deformable_weight_gradient<B: Backend>(
    kept: Kept<B>,
    weight: Shape,
    grad: FloatTensor<B>,
    options: &DeformConvOptions<2>,
) -> FloatTensor<B> {
    let (input, offset, mask) = kept.deformed();
    let weight = B::float_zeros(weight, &grad.device(), grad.dtype().into());
    B::deform_conv2d_backward(input, offset, weight, mask, None, grad, options.clone()).weight_grad
}
