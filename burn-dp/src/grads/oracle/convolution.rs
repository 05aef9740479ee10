use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};
use proptest::prelude::*;

use super::{check, check_convolution, losses, numbers};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

fn conv(config: Conv2dConfig, seed: u64, device: &Device) -> Conv2d {
    let mut layer = config.init(device);
    let shape = layer.weight.dims();
    layer.weight = layer.weight.map(|_| numbers(shape, seed, device).require_grad());
    layer.bias =
        layer.bias.map(|bias| bias.map(|_| numbers([shape[0]], seed + 1, device).require_grad()));
    layer
}

#[test]
fn every_option_of_a_convolution_equals_the_loop_over_examples() {
    let config = || Conv2dConfig::new([4, 6], [3, 2]);
    for device in training_devices() {
        for config in [
            config(),
            config().with_bias(false),
            config().with_stride([2, 3]),
            config().with_dilation([2, 3]),
            config().with_groups(2),
            Conv2dConfig::new([4, 4], [3, 3]).with_groups(4),
            config().with_padding(PaddingConfig2d::Explicit(1, 2, 1, 2)),
            config().with_padding(PaddingConfig2d::Explicit(0, 1, 2, 3)),
            config().with_padding(PaddingConfig2d::Same),
            config().with_padding(PaddingConfig2d::Same).with_stride([2, 2]),
            config()
                .with_padding(PaddingConfig2d::Explicit(1, 0, 2, 1))
                .with_stride([2, 1])
                .with_dilation([1, 2])
                .with_groups(2),
            Conv2dConfig::new([4, 5], [1, 1]),
            Conv2dConfig::new([4, 5], [8, 9]),
        ] {
            check_convolution!(config, [3, 4, 8, 9], &device);
            check_convolution!(config, [1, 4, 8, 9], &device);
        }
    }
}

#[test]
fn a_convolution_that_is_used_twice_is_summed_before_its_norm() {
    for device in training_devices() {
        let layer = conv(Conv2dConfig::new([3, 3], [3, 3]), 5, &device);
        check(
            &layer.clone().private(),
            &layer,
            numbers([3, 3, 9, 8], 6, &device),
            |model: &Private<Conv2d>, x| losses(model.forward(model.forward(x).tanh())),
            |model: &Conv2d, x| losses(model.forward(model.forward(x).tanh())),
        );
    }
}

#[derive(Module, Debug)]
struct PrivateCnn {
    conv: Private<Conv2d>,
    fc: Private<Linear>,
}

#[derive(Module, Debug)]
struct PlainCnn {
    conv: Conv2d,
    fc: Linear,
}

#[test]
fn a_network_of_convolution_and_linear_layers_equals_the_loop_over_examples() {
    for device in training_devices() {
        let conv = conv(Conv2dConfig::new([1, 4], [5, 5]), 3, &device);
        let fc = LinearConfig::new(4 * 4 * 4, 5).init(&device);
        let private = PrivateCnn { conv: conv.clone().private(), fc: fc.clone().private() };
        let plain = PlainCnn { conv, fc };
        let head = |x: Tensor<4>| -> Tensor<2> {
            MaxPool2dConfig::new([2, 2]).init().forward(x.tanh()).flatten(1, 3)
        };
        let loss = |x: Tensor<2>| x.powi_scalar(2).sum_dim(1).reshape([-1]);
        check(
            &private,
            &plain,
            numbers([6, 1, 12, 12], 9, &device),
            |model: &PrivateCnn, x| loss(model.fc.forward(head(model.conv.forward(x)))),
            |model: &PlainCnn, x| loss(model.fc.forward(head(model.conv.forward(x)))),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_convolutions_equal_the_loop_over_examples(
        batch_size in 1usize..5,
        groups in 1usize..3,
        channels in [1usize..4, 1usize..4],
        kernel in [1usize..4, 1usize..4],
        stride in [1usize..4, 1usize..4],
        dilation in [1usize..3, 1usize..3],
        padding in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        size in [7usize..12, 7usize..12],
        bias: bool,
    ) {
        let channels = channels.map(|channels| channels * groups);
        let [top, left, bottom, right] = padding;
        let config = Conv2dConfig::new(channels, kernel)
            .with_stride(stride)
            .with_dilation(dilation)
            .with_groups(groups)
            .with_padding(PaddingConfig2d::Explicit(top, left, bottom, right))
            .with_bias(bias);
        for device in training_devices() {
            let input = [batch_size, channels[0], size[0], size[1]];
            check_convolution!(config, input, &device);
        }
    }
}
