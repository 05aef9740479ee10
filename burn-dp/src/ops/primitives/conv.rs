//! Convolutions of one to three dimensions, ordinary, transposed and deformable.

use burn::backend::ops::conv::{calculate_conv_output_sizes, calculate_conv_transpose_output_size};
use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, DeformConvOptions};
use burn::tensor::{Shape, Slice};

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

    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> usize {
        match self {
            Self::Conv1d(options) => options.groups,
            Self::Conv2d(options) => options.groups,
            Self::Conv3d(options) => options.groups,
            Self::Transpose1d(options) => options.groups,
            Self::Transpose2d(options) => options.groups,
            Self::Transpose3d(options) => options.groups,
        }
    }

    /// Returns the convolution of one group.
    pub(crate) fn of_one_group(mut self) -> Self {
        match &mut self {
            Self::Conv1d(options) => options.groups = 1,
            Self::Conv2d(options) => options.groups = 1,
            Self::Conv3d(options) => options.groups = 1,
            Self::Transpose1d(options) => options.groups = 1,
            Self::Transpose2d(options) => options.groups = 1,
            Self::Transpose3d(options) => options.groups = 1,
        }
        self
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
        // Burn's gradients take the input, but use only its shape.
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
        let input = kept.one();
        match self.groups_with_unused_pixels(&input.shape(), &weight) {
            Some((one, groups)) => one.weight_gradient_of_groups::<B>(groups, input, &weight, grad),
            None => self.weight_gradient_by_burn::<B>(input, weight, grad),
        }
    }

    /// Returns the convolution of one group, and the number of groups, if there are several and the
    /// last positions of the kernel leave pixels unused. In this case, Burn's gradient is wrong.
    fn groups_with_unused_pixels(&self, input: &Shape, weight: &Shape) -> Option<(Self, usize)> {
        fn one<const N: usize>(
            convolution: fn(ConvOptions<N>) -> Convolution,
            options: &ConvOptions<N>,
            input: &Shape,
            weight: &Shape,
        ) -> Option<(Convolution, usize)> {
            let unused = |axis: usize| {
                let (begin, end) = options.padding[axis];
                let extent = options.dilation[axis] * (weight[axis + 2] - 1) + 1;
                (begin + input[axis + 2] + end - extent) % options.stride[axis]
            };
            let of_one_group = || convolution(ConvOptions { groups: 1, ..options.clone() });
            (options.groups > 1 && (0..N).any(|axis| unused(axis) > 0))
                .then(|| (of_one_group(), options.groups))
        }
        match self {
            Self::Conv1d(options) => one(Self::Conv1d, options, input, weight),
            Self::Conv2d(options) => one(Self::Conv2d, options, input, weight),
            Self::Conv3d(options) => one(Self::Conv3d, options, input, weight),
            _ => None,
        }
    }

    /// Returns the gradient of the weights of several groups, from the convolution of one of them.
    fn weight_gradient_of_groups<B: Backend>(
        &self,
        groups: usize,
        input: FloatTensor<B>,
        weight: &Shape,
        grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let of_group = |tensor: &FloatTensor<B>, group: usize| {
            let size = tensor.shape()[1] / groups;
            let range = Slice::from(group * size..(group + 1) * size);
            B::float_slice(tensor.clone(), &[Slice::full(), range])
        };
        let mut one = weight.clone();
        one[0] /= groups;
        let grads = (0..groups).map(|group| {
            let (input, grad) = (of_group(&input, group), of_group(&grad, group));
            self.weight_gradient_by_burn::<B>(input, one.clone(), grad)
        });
        B::float_cat(grads.collect(), 0)
    }

    fn weight_gradient_by_burn<B: Backend>(
        &self,
        input: FloatTensor<B>,
        weight: Shape,
        grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        // Burn's gradients take the weight, but use only its shape.
        let weight = B::float_empty(weight, &grad.device(), grad.dtype().into());
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

    /// Returns the shape of the output.
    pub(in crate::ops) fn output(&self, input: &Shape, weight: &Shape) -> Shape {
        fn last(shape: &Shape) -> Vec<usize> {
            shape.iter().skip(2).copied().collect()
        }
        fn plain<const N: usize>(
            input: &Shape,
            weight: &Shape,
            options: &ConvOptions<N>,
        ) -> (usize, Vec<usize>) {
            let ConvOptions { stride, padding, dilation, .. } = options;
            let (kernel, input) = (last(weight), last(input));
            (weight[0], calculate_conv_output_sizes(&kernel, stride, padding, dilation, &input))
        }
        fn transposed<const N: usize>(
            input: &Shape,
            weight: &Shape,
            options: &ConvTransposeOptions<N>,
        ) -> (usize, Vec<usize>) {
            let size = |axis: usize| {
                calculate_conv_transpose_output_size(
                    weight[axis + 2],
                    options.stride[axis],
                    options.padding[axis],
                    options.padding_out[axis],
                    options.dilation[axis],
                    input[axis + 2],
                )
            };
            (weight[1] * options.groups, (0..N).map(size).collect())
        }
        let (channels, size) = match self {
            Self::Conv1d(options) => plain(input, weight, options),
            Self::Conv2d(options) => plain(input, weight, options),
            Self::Conv3d(options) => plain(input, weight, options),
            Self::Transpose1d(options) => transposed(input, weight, options),
            Self::Transpose2d(options) => transposed(input, weight, options),
            Self::Transpose3d(options) => transposed(input, weight, options),
        };
        Shape::from([vec![input[0], channels], size].concat())
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

#[cfg(test)]
mod tests {
    use burn::tensor::{Tensor, TensorData};

    use super::*;
    use crate::ops::{self, Primitive};
    use crate::test_devices::devices;

    /// Kernels of two pixels and stride two on five pixels: the last one is not used.
    #[test]
    fn weight_gradient_of_groups_with_unused_pixels_is_the_sum_over_positions() {
        let (input, grad): (Vec<f32>, Vec<f32>) =
            ((0..20).map(|i| (i as f32).sin()).collect(), vec![0.5, -1.0, 2.0, 0.25]);
        let mut expected = Vec::new();
        for (output, image) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
            for kernel in 0..2 {
                let product =
                    |at: usize| grad[2 * output + at] * input[5 * image + 2 * at + kernel];
                expected.push(product(0) + product(1));
            }
        }
        let convolution = Convolution::Conv1d(ConvOptions::new([2], [0], [1], 2));
        let primitive = Primitive::Convolution { convolution, kernel: None };
        for device in devices() {
            let tensor = |values: &[f32], shape: [usize; 3]| {
                Tensor::<3>::from_data(TensorData::new(values.to_vec(), shape), &device)
            };
            let kept = ops::keep(tensor(&input, [1, 4, 5]));
            let grad = tensor(&grad, [1, 2, 2]);
            let weight = Shape::new([2, 2, 2]);
            let found = ops::weight_gradient(grad, kept, weight, primitive.clone());
            let expected = TensorData::new(expected.clone(), [8]);
            found.into_data().assert_approx_eq::<f32>(&expected, Default::default());
        }
    }
}
