use burn::nn::conv::DeformConv2d;
use burn::tensor::ops::DeformConvOptions;
use burn::tensor::{Tensor, module};

use super::{Private, padding};
use crate::ops::{self, Primitive};

impl Private<DeformConv2d> {
    /// Applies the deformable convolution. Offset and mask usually come from convolutions, which
    /// must be private themselves.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, height_in, width_in]`
    /// - offset: `[batch_size, 2 · offset_groups · kernel values, height_out, width_out]`
    /// - mask: `[batch_size, offset_groups · kernel values, height_out, width_out]`
    /// - output: `[batch_size, channels_out, height_out, width_out]`
    ///
    /// # Panics
    ///
    /// Panics if the channels of `input` are not those of the layer, and if the padding is not the
    /// same on both sides, which Burn does not support here.
    pub fn forward(
        &self,
        input: Tensor<4>,
        offset: Tensor<4>,
        mask: Option<Tensor<4>>,
    ) -> Tensor<4> {
        deform_conv2d(&self.inner, input, offset, mask)
    }
}

/// See [`Private<DeformConv2d>::forward`](Private).
pub(crate) fn deform_conv2d(
    layer: &DeformConv2d,
    input: Tensor<4>,
    offset: Tensor<4>,
    mask: Option<Tensor<4>>,
) -> Tensor<4> {
    let [_, channels_in, height, width] = input.dims();
    padding::check_channels(channels_in, layer.weight.dims()[1] * layer.weight_groups);
    let padding =
        padding::pairs_2d(&layer.padding, [height, width], layer.kernel_size, layer.stride);
    let options = DeformConvOptions::new(
        layer.stride,
        padding.map(padding::both_sides),
        layer.dilation,
        layer.weight_groups,
        layer.offset_groups,
    );
    let kept = (input.clone(), offset.clone(), mask.clone());
    ops::apply(
        &layer.weight,
        layer.bias.as_ref(),
        Primitive::DeformConv2d(options.clone()),
        || ops::keep_deformed(kept.0, kept.1, kept.2),
        |weight, bias| module::deform_conv2d(input, offset, weight, mask, bias, options),
    )
}
