//! Deformable convolutions.
//!
//! The rule is the same as for a convolution, except that the pixels under the kernel are sampled
//! at positions that the offsets define, and multiplied by the mask: `Σ_l S(input_i)_l ⊗
//! output_grad[i, ·, l]` with the samples `S` in place of the patches `U`. The offset and the mask
//! have Burn's gradients.
//!
//! # References
//!
//! - Dai et al., Deformable convolutional networks, 2017, section 2.1.
//! - Zhu et al., Deformable ConvNets v2: more deformable, better results, 2019, section 3.2 (the
//!   mask).

use burn::tensor::ops::DeformConvOptions;
use burn::tensor::{Shape, Tensor, module::deform_conv2d};

use super::columns::{ColumnRule, Columns, Sizes};
use crate::grads::rules::Restriction;
use crate::grads::rules::record::Record;
use crate::grads::rules::rule::size;
use crate::grads::rules::shift;

/// Lifts the record of a deformable convolution.
pub(in crate::grads::rules) fn lift(record: &mut Record, options: DeformConvOptions<2>) {
    let output_grad = record.output_grad::<4>();
    shift::lift(record, &output_grad, 1);
    if let (Some(input), Some(offset), mask, Some(weight)) =
        (record.kept(), record.kept(), record.kept(), record.weight())
    {
        record.push(DeformConvWeight { input, offset, mask, output_grad, weight, options });
    }
}

/// The weight of a deformable convolution.
#[derive(Clone, Debug)]
struct DeformConvWeight {
    /// `[batch_size, channels_in, height, width]`.
    input: Tensor<4>,
    /// The sampling offsets, `[batch_size, 2 · offset_groups · kernel values, height_out,
    /// width_out]`.
    offset: Tensor<4>,
    /// Factors of the samples,
    /// `[batch_size, offset_groups · kernel values, height_out, width_out]`.
    mask: Option<Tensor<4>>,
    /// `[batch_size, channels_out, height_out, width_out]`.
    output_grad: Tensor<4>,
    /// `[channels_out, channels_in / weight_groups, kernel_height, kernel_width]`.
    weight: Shape,
    /// Options of the forward pass.
    options: DeformConvOptions<2>,
}

impl ColumnRule for DeformConvWeight {
    fn kept_values(&self) -> usize {
        let mask = self.mask.as_ref().map_or(0, |mask| size(mask.shape()));
        size(self.input.shape()) + size(self.offset.shape()) + mask + size(self.output_grad.shape())
    }

    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn sizes(&self) -> Sizes {
        let groups = self.options.weight_groups;
        let [_, channels, height, width] = self.output_grad.dims();
        Sizes {
            groups,
            positions: height * width,
            d_input: self.weight.iter().skip(1).product(),
            d_output: channels / groups,
        }
    }

    /// Samples the columns with a deformable convolution whose kernels select one value each.
    fn columns(&self) -> Columns {
        let Sizes { groups, positions, d_input, d_output } = self.sizes();
        let [batch_size, channels, ..] = self.input.dims();
        let [_, _, kernel_height, kernel_width] = self.weight.dims();
        let kernel_values = kernel_height * kernel_width;
        let select = Tensor::<2>::eye(kernel_values, &self.input.device())
            .reshape([kernel_values, 1, kernel_height, kernel_width])
            .repeat_dim(0, channels);
        let options = DeformConvOptions { weight_groups: channels, ..self.options.clone() };
        let samples = deform_conv2d(
            self.input.clone(),
            self.offset.clone(),
            select,
            self.mask.clone(),
            None,
            options,
        );
        let rows = batch_size * groups;
        Columns {
            columns: samples.reshape([rows, d_input, positions]),
            pixels: self.output_grad.clone().reshape([rows, d_output, positions]),
            groups,
        }
    }

    fn restrict(&self, examples: &Restriction) -> Self {
        Self {
            input: examples.apply(&self.input),
            offset: examples.apply(&self.offset),
            mask: self.mask.as_ref().map(|mask| examples.apply(mask)),
            output_grad: examples.apply(&self.output_grad),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::PaddingConfig2d;
    use burn::nn::conv::{Conv2d, Conv2dConfig, DeformConv2d, DeformConv2dConfig};
    use burn::tensor::Device;

    use crate::grads::oracle::{check_twins, losses, numbered, numbers};
    use crate::nn::{IntoPrivate, Private};
    use crate::test_devices::training_devices;

    #[derive(Module, Debug)]
    struct Deformed<C, D> {
        offset: C,
        mask: Option<C>,
        conv: D,
    }

    type PrivateDeformed = Deformed<Private<Conv2d>, Private<DeformConv2d>>;
    type PlainDeformed = Deformed<Conv2d, DeformConv2d>;

    fn models(
        config: &DeformConv2dConfig,
        mask: bool,
        device: &Device,
    ) -> (PrivateDeformed, PlainDeformed) {
        let sampled = config.offset_groups * config.kernel_size.iter().product::<usize>();
        let conv = |channels, seed| {
            let config = Conv2dConfig::new([config.channels[0], channels], config.kernel_size)
                .with_stride(config.stride)
                .with_dilation(config.dilation)
                .with_padding(config.padding.clone());
            numbered(config.init(device), seed)
        };
        let plain = Deformed {
            offset: conv(2 * sampled, 5),
            mask: mask.then(|| conv(sampled, 7)),
            conv: numbered(config.init(device), 17),
        };
        let private = Deformed {
            offset: plain.offset.clone().private(),
            mask: plain.mask.clone().map(IntoPrivate::private),
            conv: plain.conv.clone().private(),
        };
        (private, plain)
    }

    #[test]
    fn deformable_convolutions_equal_the_loop_over_examples() {
        let config = || DeformConv2dConfig::new([4, 6], [3, 3]);
        for device in training_devices() {
            for (config, mask) in [
                (config(), false),
                (config().with_bias(false), true),
                (
                    config()
                        .with_stride([2, 1])
                        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)),
                    true,
                ),
                (config().with_weight_groups(2).with_offset_groups(2), true),
                (config().with_dilation([1, 2]).with_padding(PaddingConfig2d::Same), false),
            ] {
                let (private, plain) = models(&config, mask, &device);
                let x = numbers([2, 4, 5, 6], 23, &device);
                check_twins!(&private, &plain, x, |model, x| {
                    let mask = model.mask.as_ref().map(|mask| mask.forward(x.clone()));
                    let offset = model.offset.forward(x.clone()) * 0.2;
                    losses(model.conv.forward(x, offset, mask))
                });
            }
        }
    }
}
