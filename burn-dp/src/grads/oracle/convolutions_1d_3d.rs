use burn::nn::conv::{Conv1d, Conv1dConfig, Conv3dConfig};
use burn::nn::{PaddingConfig1d, PaddingConfig3d};
use proptest::prelude::*;

use super::{check, check_convolution, losses, numbers, set};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

#[test]
fn every_option_of_a_convolution_over_time_equals_the_loop_over_examples() {
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
fn every_option_of_a_convolution_over_volumes_equals_the_loop_over_examples() {
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
fn a_convolution_over_time_may_be_frozen_in_part_and_used_twice() {
    for device in training_devices() {
        for (weight, bias) in [(true, false), (false, true), (true, true)] {
            let mut layer = Conv1dConfig::new(3, 3, 2).init(&device);
            layer.weight = set(layer.weight, 1).set_require_grad(weight);
            layer.bias = layer.bias.map(|parameter| set(parameter, 2).set_require_grad(bias));
            check(
                &layer.clone().private(),
                &layer,
                numbers([3, 3, 6], 5, &device),
                |model: &Private<Conv1d>, x| losses(model.forward(model.forward(x).tanh())),
                |model: &Conv1d, x| losses(model.forward(model.forward(x).tanh())),
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_convolutions_over_volumes_equal_the_loop_over_examples(
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
