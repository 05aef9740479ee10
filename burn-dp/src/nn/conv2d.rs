use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::ops::ConvOptions;

use super::{Private, padding};
use crate::ops::{self, LayerIds};

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
        let layer = &self.inner;
        let weight = layer.weight.val();
        let [_, channels_in, height, width] = input.dims();
        let [_, group_channels, ..] = weight.dims();
        assert_eq!(
            channels_in,
            group_channels * layer.groups,
            "the convolution expects {} input channels, got {channels_in}",
            group_channels * layer.groups,
        );

        let padding =
            padding::pairs_2d(&layer.padding, [height, width], layer.kernel_size, layer.stride);
        let options =
            ConvOptions::new_with_padding(layer.stride, padding, layer.dilation, layer.groups);
        let ids =
            LayerIds { weight: layer.weight.id, bias: layer.bias.as_ref().map(|bias| bias.id) };
        ops::conv2d(input, weight, layer.bias.as_ref().map(|bias| bias.val()), options, ids)
    }
}
