use burn::module::Param;
use burn::nn::conv::{Conv1d, Conv2d, Conv3d};
use burn::tensor::Tensor;
use burn::tensor::ops::ConvOptions;

use super::affine::affine;
use super::standardized::{StandardizedConv2d, standardized};
use super::weight::convolved;
use super::{Private, low_rank, padding};
use crate::ops::{self, Convolution, Primitive};

impl Private<Conv1d> {
    /// Applies the convolution.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, length_in]`
    /// - output: `[batch_size, channels_out, length_out]`
    ///
    /// # Panics
    ///
    /// Panics if `input` does not have the channels of the layer.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        conv1d(&self.inner, input)
    }
}

impl Private<Conv2d> {
    /// Applies the convolution.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, height_in, width_in]`
    /// - output: `[batch_size, channels_out, height_out, width_out]`
    ///
    /// # Panics
    ///
    /// Panics if `input` does not have the channels of the layer.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        conv2d(&self.inner, input)
    }
}

impl Private<StandardizedConv2d> {
    /// Applies the convolution with its standardized weight.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, height_in, width_in]`
    /// - output: `[batch_size, channels_out, height_out, width_out]`
    ///
    /// # Panics
    ///
    /// Panics if `input` does not have the channels of the layer.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let StandardizedConv2d { weight, gain, bias, epsilon, .. } = &self.inner;
        let convolution = Convolution::Conv2d(self.inner.options(&input));
        let kept = input.clone();
        let primitive = Primitive::StandardizedConvolution {
            convolution: convolution.clone(),
            epsilon: *epsilon,
        };
        let with_bias = bias.as_ref().filter(|_| gain.is_none());
        let output = ops::apply(
            weight,
            with_bias,
            primitive,
            || ops::keep_standardized(kept, weight),
            |weight, bias| {
                let weight = standardized(weight, *epsilon);
                ops::convolution(input, weight, bias, convolution)
            },
        );
        match gain {
            Some(gain) => affine(output, gain, bias.as_ref(), 1),
            None => output,
        }
    }
}

impl Private<Conv3d> {
    /// Applies the convolution.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, depth_in, height_in, width_in]`
    /// - output: `[batch_size, channels_out, depth_out, height_out, width_out]`
    ///
    /// # Panics
    ///
    /// Panics if `input` does not have the channels of the layer, or if "same" padding is not equal
    /// on both sides, which Burn does not support in three dimensions.
    pub fn forward(&self, input: Tensor<5>) -> Tensor<5> {
        conv3d(&self.inner, input)
    }
}

/// Implements [`Private<Conv1d>::forward`](Private).
pub(crate) fn conv1d(layer: &Conv1d, input: Tensor<3>) -> Tensor<3> {
    let [_, channels_in, length] = input.dims();
    padding::check_channels(channels_in, layer.weight.dims()[1] * layer.groups);
    let padding = padding::pairs_1d(&layer.padding, length, layer.kernel_size, layer.stride);
    let options =
        ConvOptions::new_with_padding([layer.stride], [padding], [layer.dilation], layer.groups);
    convolution(&layer.weight, layer.bias.as_ref(), Convolution::Conv1d(options), input)
}

/// Implements [`Private<Conv2d>::forward`](Private).
pub(crate) fn conv2d(layer: &Conv2d, input: Tensor<4>) -> Tensor<4> {
    let [_, channels_in, height, width] = input.dims();
    padding::check_channels(channels_in, layer.weight.dims()[1] * layer.groups);
    let padding =
        padding::pairs_2d(&layer.padding, [height, width], layer.kernel_size, layer.stride);
    let options =
        ConvOptions::new_with_padding(layer.stride, padding, layer.dilation, layer.groups);
    convolution(&layer.weight, layer.bias.as_ref(), Convolution::Conv2d(options), input)
}

/// Implements [`Private<Conv3d>::forward`](Private).
pub(crate) fn conv3d(layer: &Conv3d, input: Tensor<5>) -> Tensor<5> {
    let [_, channels_in, depth, height, width] = input.dims();
    padding::check_channels(channels_in, layer.weight.dims()[1] * layer.groups);
    let size = [depth, height, width];
    let padding = padding::symmetric_3d(&layer.padding, size, layer.kernel_size, layer.stride);
    let options = ConvOptions::new(layer.stride, padding, layer.dilation, layer.groups);
    convolution(&layer.weight, layer.bias.as_ref(), Convolution::Conv3d(options), input)
}

/// Applies a convolution of one to three axes, which may be transposed, with its LoRA adapter if it
/// has one.
pub(super) fn convolution<const D: usize>(
    weight: &Param<Tensor<D>>,
    bias: Option<&Param<Tensor<1>>>,
    convolution: Convolution,
    input: Tensor<D>,
) -> Tensor<D> {
    let kernel = weight.dims();
    match weight.adapter() {
        None => convolved(weight, kernel, bias, convolution, input),
        Some(adapter) => {
            let base = low_rank::dense(weight, input.dtype());
            convolved(&base, kernel, bias, convolution.clone(), input.clone())
                + low_rank::convolution(adapter, kernel, convolution, input)
        }
    }
}
