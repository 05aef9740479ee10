use burn::nn::conv::{ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
use burn::tensor::Tensor;
use burn::tensor::ops::ConvTransposeOptions;

use super::{Private, conv::convolution, padding};
use crate::ops::Convolution;

impl Private<ConvTranspose1d> {
    /// Applies the transposed convolution.
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
        conv_transpose1d(&self.inner, input)
    }
}

impl Private<ConvTranspose2d> {
    /// Applies the transposed convolution.
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
        conv_transpose2d(&self.inner, input)
    }
}

impl Private<ConvTranspose3d> {
    /// Applies the transposed convolution.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, depth_in, height_in, width_in]`
    /// - output: `[batch_size, channels_out, depth_out, height_out, width_out]`
    ///
    /// # Panics
    ///
    /// Panics if `input` does not have the channels of the layer.
    pub fn forward(&self, input: Tensor<5>) -> Tensor<5> {
        conv_transpose3d(&self.inner, input)
    }
}

/// Implements [`Private<ConvTranspose1d>::forward`](Private).
pub(crate) fn conv_transpose1d(layer: &ConvTranspose1d, input: Tensor<3>) -> Tensor<3> {
    padding::check_channels(input.dims()[1], layer.weight.dims()[0]);
    let options = ConvTransposeOptions::new(
        [layer.stride],
        [layer.padding],
        [layer.padding_out],
        [layer.dilation],
        layer.groups,
    );
    convolution(&layer.weight, layer.bias.as_ref(), Convolution::Transpose1d(options), input)
}

/// Implements [`Private<ConvTranspose2d>::forward`](Private).
pub(crate) fn conv_transpose2d(layer: &ConvTranspose2d, input: Tensor<4>) -> Tensor<4> {
    padding::check_channels(input.dims()[1], layer.weight.dims()[0]);
    let options = ConvTransposeOptions::new(
        layer.stride,
        layer.padding,
        layer.padding_out,
        layer.dilation,
        layer.groups,
    );
    convolution(&layer.weight, layer.bias.as_ref(), Convolution::Transpose2d(options), input)
}

/// Implements [`Private<ConvTranspose3d>::forward`](Private).
pub(crate) fn conv_transpose3d(layer: &ConvTranspose3d, input: Tensor<5>) -> Tensor<5> {
    padding::check_channels(input.dims()[1], layer.weight.dims()[0]);
    let options = ConvTransposeOptions::new(
        layer.stride,
        layer.padding,
        layer.padding_out,
        layer.dilation,
        layer.groups,
    );
    convolution(&layer.weight, layer.bias.as_ref(), Convolution::Transpose3d(options), input)
}
