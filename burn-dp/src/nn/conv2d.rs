use burn::nn::conv::Conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, module};

use super::{Private, padding};
use crate::ops::{self, Primitive};

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
    /// Panics if the channels of `input` are not those of the layer.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        conv2d(&self.inner, input)
    }
}

/// See [`Private<Conv2d>::forward`](Private).
pub(crate) fn conv2d(layer: &Conv2d, input: Tensor<4>) -> Tensor<4> {
    let [_, channels_in, height, width] = input.dims();
    padding::check_channels(channels_in, layer.weight.dims()[1] * layer.groups);
    let padding =
        padding::pairs_2d(&layer.padding, [height, width], layer.kernel_size, layer.stride);
    let options =
        ConvOptions::new_with_padding(layer.stride, padding, layer.dilation, layer.groups);
    let kept = input.clone();
    ops::apply(
        &layer.weight,
        layer.bias.as_ref(),
        Primitive::Conv2d(options.clone()),
        || ops::keep(kept),
        |weight, bias| module::conv2d(input, weight, bias, options),
    )
}
