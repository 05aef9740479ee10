use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig, DeformConv2d, DeformConv2dConfig};
use burn::tensor::{Device, Tensor};

use super::{check, losses, numbers, set};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

#[derive(Module, Debug)]
struct PrivateDeformed {
    offset: Private<Conv2d>,
    mask: Option<Private<Conv2d>>,
    conv: Private<DeformConv2d>,
}

#[derive(Module, Debug)]
struct PlainDeformed {
    offset: Conv2d,
    mask: Option<Conv2d>,
    conv: DeformConv2d,
}

fn models(
    config: &DeformConv2dConfig,
    mask: bool,
    device: &Device,
) -> (PrivateDeformed, PlainDeformed) {
    let sampled = config.offset_groups * config.kernel_size.iter().product::<usize>();
    let conv = |channels, seed| {
        let mut layer = Conv2dConfig::new([config.channels[0], channels], config.kernel_size)
            .with_stride(config.stride)
            .with_dilation(config.dilation)
            .with_padding(config.padding.clone())
            .init(device);
        layer.weight = set(layer.weight, seed);
        layer.bias = layer.bias.map(|bias| set(bias, seed + 1));
        layer
    };
    let mut deformed = config.init(device);
    deformed.weight = set(deformed.weight, 17);
    deformed.bias = deformed.bias.map(|bias| set(bias, 18));
    let plain = PlainDeformed {
        offset: conv(2 * sampled, 5),
        mask: mask.then(|| conv(sampled, 7)),
        conv: deformed,
    };
    let private = PrivateDeformed {
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
                config().with_stride([2, 1]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)),
                true,
            ),
            (config().with_weight_groups(2).with_offset_groups(2), true),
            (config().with_dilation([1, 2]).with_padding(PaddingConfig2d::Same), false),
        ] {
            let (private, plain) = models(&config, mask, &device);
            check(
                &private,
                &plain,
                numbers([2, 4, 5, 6], 23, &device),
                |model: &PrivateDeformed, x: Tensor<4>| {
                    let mask = model.mask.as_ref().map(|mask| mask.forward(x.clone()));
                    let offset = model.offset.forward(x.clone()) * 0.2;
                    losses(model.conv.forward(x, offset, mask))
                },
                |model: &PlainDeformed, x: Tensor<4>| {
                    let mask = model.mask.as_ref().map(|mask| mask.forward(x.clone()));
                    let offset = model.offset.forward(x.clone()) * 0.2;
                    losses(model.conv.forward(x, offset, mask))
                },
            );
        }
    }
}
