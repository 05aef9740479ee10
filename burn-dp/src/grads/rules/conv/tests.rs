//! Convolutions of one to three dimensions against the loop over single examples.

use burn::module::Module;
use burn::nn::conv::{Conv1dConfig, Conv2dConfig, Conv3dConfig};
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::{LinearConfig, PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use burn::tensor::Tensor;
use proptest::prelude::*;

use crate::grads::oracle::{
    cases, check_convolution, check_layer, check_products, check_twins, losses, numbered, numbers,
    set,
};
use crate::nn::IntoPrivate;
use crate::test_devices::training_devices;

#[test]
fn every_option_of_conv2d_equals_the_loop_over_examples() {
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
fn products_with_a_direction_equal_those_of_single_examples() {
    for device in training_devices() {
        // Gradients of 64 MiB are formed at once: of all examples, and of some.
        for (channels, examples) in [(3, 3), (512, 8)] {
            let config = Conv2dConfig::new([channels; 2], [3, 3]);
            let layer = numbered(config.init(&device), 5).private();
            let x = numbers([examples, channels, 3, 4], 6, &device);
            check_products(&layer, || losses(layer.forward(x.clone())));
        }
    }
}

#[test]
fn two_uses_of_a_convolution_are_summed_before_the_norm() {
    for device in training_devices() {
        let layer = numbered(Conv2dConfig::new([3, 3], [3, 3]).init(&device), 5);
        let x = numbers([3, 3, 9, 8], 6, &device);
        check_layer!(layer, x, |model, x| losses(model.forward(model.forward(x).tanh())));
    }
}

#[derive(Module, Debug)]
struct Cnn<C, L> {
    conv: C,
    fc: L,
}

#[test]
fn a_convolutional_network_equals_the_loop_over_examples() {
    for device in training_devices() {
        let conv = numbered(Conv2dConfig::new([1, 4], [5, 5]).init(&device), 3);
        let fc = LinearConfig::new(4 * 4 * 4, 5).init(&device);
        let private = Cnn { conv: conv.clone().private(), fc: fc.clone().private() };
        let plain = Cnn { conv, fc };
        let head = |x: Tensor<4>| -> Tensor<2> {
            MaxPool2dConfig::new([2, 2]).init().forward(x.tanh()).flatten(1, 3)
        };
        let loss = |x: Tensor<2>| x.powi_scalar(2).sum_dim(1).reshape([-1]);
        let x = numbers([6, 1, 12, 12], 9, &device);
        check_twins!(&private, &plain, x, |model, x| {
            loss(model.fc.forward(head(model.conv.forward(x))))
        });
    }
}

#[derive(Module, Debug)]
struct Pooled<C, P> {
    conv: C,
    pool: P,
}

#[test]
fn max_pooling_equals_the_loop_over_examples() {
    let config = || MaxPool2dConfig::new([2, 3]);
    for device in training_devices() {
        for config in [
            config(),
            config().with_strides([1, 2]),
            config().with_dilation([2, 2]),
            config().with_ceil_mode(true),
            config().with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)),
            config().with_padding(PaddingConfig2d::Explicit(0, 1, 1, 1)),
        ] {
            let conv = numbered(Conv2dConfig::new([2, 4], [3, 3]).init(&device), 3);
            let pool = config.init();
            let private = Pooled { conv: conv.clone().private(), pool: pool.clone().private() };
            let plain = Pooled { conv, pool };
            let x = numbers([5, 2, 9, 11], 9, &device);
            check_twins!(&private, &plain, x, |model, x| {
                losses(model.pool.forward(model.conv.forward(x)))
            });
        }
    }
}

#[test]
fn every_option_of_conv1d_equals_the_loop_over_examples() {
    let config = || Conv1dConfig::new(4, 6, 3);
    for device in training_devices() {
        for config in [
            config(),
            config().with_bias(false),
            config().with_stride(2),
            config().with_dilation(2),
            config().with_groups(2),
            Conv1dConfig::new(4, 4, 3).with_groups(4),
            config().with_padding(PaddingConfig1d::Explicit(1, 1)),
            config().with_padding(PaddingConfig1d::Explicit(0, 2)),
            config().with_padding(PaddingConfig1d::Same),
            config().with_padding(PaddingConfig1d::Same).with_stride(2).with_groups(2),
            Conv1dConfig::new(4, 5, 9),
        ] {
            check_convolution!(config, [3, 4, 9], &device);
        }
    }
}

#[test]
fn every_option_of_conv3d_equals_the_loop_over_examples() {
    let config = || Conv3dConfig::new([2, 4], [2, 3, 2]);
    for device in training_devices() {
        for config in [
            config(),
            config().with_bias(false),
            config().with_stride([2, 1, 2]),
            config().with_dilation([1, 2, 2]),
            config().with_groups(2),
            config().with_padding(PaddingConfig3d::Explicit(1, 0, 1)),
            Conv3dConfig::new([2, 3], [3, 1, 3]).with_padding(PaddingConfig3d::Same),
            Conv3dConfig::new([2, 3], [1, 2, 2]),
        ] {
            check_convolution!(config, [2, 2, 4, 5, 5], &device);
        }
    }
}

#[test]
fn partly_frozen_conv1d_used_twice_equals_the_loop_over_examples() {
    for device in training_devices() {
        for (weight, bias) in [(true, false), (false, true), (true, true)] {
            let mut layer = Conv1dConfig::new(3, 3, 2).init(&device);
            layer.weight = set(layer.weight, 1).set_require_grad(weight);
            layer.bias = layer.bias.map(|parameter| set(parameter, 2).set_require_grad(bias));
            let x = numbers([3, 3, 6], 5, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(model.forward(x).tanh())));
        }
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn random_conv2d_equals_the_loop_over_examples(
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

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn random_conv3d_equals_the_loop_over_examples(
        batch_size in 1usize..4,
        groups in 1usize..3,
        channels in [1usize..3, 1usize..3],
        kernel in [1usize..3, 1usize..3, 1usize..3],
        stride in [1usize..3, 1usize..3, 1usize..3],
        padding in [0usize..2, 0usize..2, 0usize..2],
        size in [3usize..5, 3usize..6, 3usize..6],
    ) {
        let channels = channels.map(|channels| channels * groups);
        let config = Conv3dConfig::new(channels, kernel)
            .with_stride(stride)
            .with_groups(groups)
            .with_padding(PaddingConfig3d::Explicit(padding[0], padding[1], padding[2]));
        for device in training_devices() {
            let input = [batch_size, channels[0], size[0], size[1], size[2]];
            check_convolution!(config, input, &device);
        }
    }
}
