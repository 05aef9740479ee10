use burn::module::{Module, Param};
use burn::nn::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig,
    LayerNorm, LayerNormConfig, PRelu, PReluConfig, RmsNorm, RmsNormConfig,
};
use burn::tensor::{Device, Tensor};
use proptest::prelude::*;

use super::{assert_equal, check, losses, numbers, set};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

fn layer_norm(d_model: usize, bias: bool, device: &Device) -> LayerNorm {
    let mut layer = LayerNormConfig::new(d_model).with_bias(bias).init(device);
    layer.gamma = set(layer.gamma, 1);
    layer.beta = layer.beta.map(|beta| set(beta, 2));
    layer
}

fn check_layer_norm<const D: usize>(layer: LayerNorm, input: Tensor<D>) {
    check(
        &layer.clone().private(),
        &layer,
        input,
        |model: &Private<LayerNorm>, x: Tensor<D>| losses(model.forward(x)),
        |model: &LayerNorm, x: Tensor<D>| losses(model.forward(x)),
    );
}

#[test]
fn layer_norms_equal_the_loop_over_examples() {
    for device in training_devices() {
        for bias in [true, false] {
            check_layer_norm(layer_norm(5, bias, &device), numbers([4, 5], 3, &device));
            check_layer_norm(layer_norm(5, bias, &device), numbers([4, 3, 5], 4, &device));
            check_layer_norm(layer_norm(5, bias, &device), numbers([1, 3, 2, 5], 4, &device));
        }
    }
}

#[test]
fn a_norm_may_be_frozen_in_part() {
    for device in training_devices() {
        for (gamma, beta) in [(true, false), (false, true)] {
            let mut layer = layer_norm(4, true, &device);
            layer.gamma = layer.gamma.set_require_grad(gamma);
            layer.beta = layer.beta.map(|parameter| parameter.set_require_grad(beta));
            check_layer_norm(layer, numbers([3, 2, 4], 5, &device));
        }
    }
}

#[test]
fn a_norm_that_is_used_twice_is_summed_before_its_norm() {
    for device in training_devices() {
        let layer = layer_norm(4, true, &device);
        fn twice(apply: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>) -> Tensor<1> {
            let y = apply(x.clone()).tanh();
            losses(apply(y.narrow(1, 0, 2) + x.narrow(1, 1, 2)))
        }
        check(
            &layer.clone().private(),
            &layer,
            numbers([4, 3, 4], 2, &device),
            |model: &Private<LayerNorm>, x: Tensor<3>| twice(|x| model.forward(x), x),
            |model: &LayerNorm, x: Tensor<3>| twice(|x| model.forward(x), x),
        );
    }
}

#[test]
fn rms_norms_equal_the_loop_over_examples() {
    for device in training_devices() {
        let mut layer = RmsNormConfig::new(6).init(&device);
        layer.gamma = set(layer.gamma, 1);
        check(
            &layer.clone().private(),
            &layer,
            numbers([4, 3, 6], 3, &device),
            |model: &Private<RmsNorm>, x: Tensor<3>| losses(model.forward(x)),
            |model: &RmsNorm, x: Tensor<3>| losses(model.forward(x)),
        );
    }
}

fn group_norm(groups: usize, channels: usize, device: &Device) -> GroupNorm {
    let mut layer = GroupNormConfig::new(groups, channels).init(device);
    layer.gamma = layer.gamma.map(|gamma| set(gamma, 1));
    layer.beta = layer.beta.map(|beta| set(beta, 2));
    layer
}

#[test]
fn group_norms_equal_the_loop_over_examples() {
    for device in training_devices() {
        for (groups, shape) in [(1, [3, 4, 2, 3]), (2, [2, 4, 3, 1]), (4, [1, 4, 2, 2])] {
            let layer = group_norm(groups, 4, &device);
            check(
                &layer.clone().private(),
                &layer,
                numbers(shape, 3, &device),
                |model: &Private<GroupNorm>, x: Tensor<4>| losses(model.forward(x)),
                |model: &GroupNorm, x: Tensor<4>| losses(model.forward(x)),
            );
        }
    }
}

#[test]
fn instance_norms_equal_the_loop_over_examples() {
    for device in training_devices() {
        let mut layer = InstanceNormConfig::new(3).init(&device);
        layer.gamma = layer.gamma.map(|gamma| set(gamma, 1));
        layer.beta = layer.beta.map(|beta| set(beta, 2));
        check(
            &layer.clone().private(),
            &layer,
            numbers([4, 3, 5], 3, &device),
            |model: &Private<InstanceNorm>, x: Tensor<3>| losses(model.forward(x)),
            |model: &InstanceNorm, x: Tensor<3>| losses(model.forward(x)),
        );
    }
}

#[derive(Module, Debug)]
struct PrivateAffineFree {
    group: Private<GroupNorm>,
    instance: Private<InstanceNorm>,
    last: Private<LayerNorm>,
}

#[derive(Module, Debug)]
struct PlainAffineFree {
    group: GroupNorm,
    instance: InstanceNorm,
    last: LayerNorm,
}

#[test]
fn norms_without_parameters_are_passed_through() {
    for device in training_devices() {
        let group = GroupNormConfig::new(2, 4).with_affine(false).init(&device);
        let instance = InstanceNormConfig::new(4).with_affine(false).init(&device);
        let last = layer_norm(3, true, &device);
        let plain = PlainAffineFree { group, instance, last };
        let private = PrivateAffineFree {
            group: plain.group.clone().private(),
            instance: plain.instance.clone().private(),
            last: plain.last.clone().private(),
        };
        check(
            &private,
            &plain,
            numbers([3, 4, 3], 3, &device),
            |model: &PrivateAffineFree, x: Tensor<3>| {
                let x = model.instance.forward(model.group.forward(x).tanh());
                losses(model.last.forward(x))
            },
            |model: &PlainAffineFree, x: Tensor<3>| {
                let x = model.instance.forward(model.group.forward(x).tanh());
                losses(model.last.forward(x))
            },
        );
    }
}

fn batch_norm(device: &Device) -> BatchNorm {
    let mut layer = BatchNormConfig::new(3).init(device);
    layer.gamma = set(layer.gamma, 1);
    layer.beta = set(layer.beta, 2);
    layer.running_mean.update(numbers([3], 3, device));
    layer.running_var.update(numbers([3], 4, device).abs() + 0.5);
    // An update is seen after the next synchronisation; copies of the layer make one.
    let _ = layer.running_mean.value_sync();
    let _ = layer.running_var.value_sync();
    layer
}

#[test]
fn a_batch_norm_with_stored_statistics_equals_the_loop_over_examples() {
    for device in training_devices() {
        let private = Private::<BatchNorm>::with_stored_statistics(batch_norm(&device));
        let plain = private.clone().into_inner();
        check(
            &private,
            &plain,
            numbers([4, 3, 2, 2], 5, &device),
            |model: &Private<BatchNorm>, x: Tensor<4>| losses(model.forward(x)),
            |model: &BatchNorm, x: Tensor<4>| losses(model.forward(x)),
        );
    }
}

// Burn's norm without parameters would not see that the channels are others.
#[test]
#[should_panic(expected = "axis 1 expected 3, got 6")]
fn a_norm_without_parameters_refuses_another_number_of_channels() {
    let device = training_devices().remove(0);
    let norm = InstanceNormConfig::new(3).with_affine(false).init(&device);
    norm.private().forward(numbers([2, 6, 4], 5, &device));
}

#[test]
#[should_panic(expected = "use GroupNorm, LayerNorm or InstanceNorm")]
fn a_batch_norm_in_training_mode_does_not_run() {
    let device = training_devices().remove(0);
    batch_norm(&device).private().forward(numbers([4, 3, 2], 5, &device));
}

#[test]
fn parametric_relus_equal_the_loop_over_examples() {
    for device in training_devices() {
        for parameters in [1, 3] {
            let mut layer = PReluConfig::new().with_num_parameters(parameters).init(&device);
            layer.alpha = set(layer.alpha, 1);
            check(
                &layer.clone().private(),
                &layer,
                numbers([4, 3, 5], 3, &device),
                |model: &Private<PRelu>, x: Tensor<3>| losses(model.forward(x)),
                |model: &PRelu, x: Tensor<3>| losses(model.forward(x)),
            );
        }
    }
}

/// A scale in front of a norm, so that the gradient through the norm is seen too.
#[derive(Module, Debug)]
struct Scaled<M> {
    scale: Private<Param<Tensor<1>>>,
    norm: M,
}

#[test]
fn the_gradient_of_the_input_of_a_norm_is_that_of_burn() {
    for device in training_devices() {
        let scale: Param<Tensor<1>> = set(Param::from_tensor(Tensor::ones([5], &device)), 7);
        let norm = layer_norm(5, true, &device);
        let private = Scaled { scale: scale.clone().private(), norm: norm.clone().private() };
        let plain = Scaled { scale: scale.private(), norm };
        fn scaled<M>(model: &Scaled<M>, x: Tensor<3>) -> Tensor<3> {
            let scale: Tensor<2> = model.scale.forward(x.dims()[0]);
            x * scale.unsqueeze_dim(1)
        }
        check(
            &private,
            &plain,
            numbers([4, 2, 5], 3, &device),
            |model: &Scaled<Private<LayerNorm>>, x| losses(model.norm.forward(scaled(model, x))),
            |model: &Scaled<LayerNorm>, x| losses(model.norm.forward(scaled(model, x))),
        );
    }
}

#[test]
fn a_group_of_two_values_is_normalised_as_in_a_larger_batch() {
    for device in training_devices() {
        let layer = group_norm(1, 1, &device);
        let x = numbers([3, 1, 2], 3, &device);
        let expected = layer.forward(x.clone()).narrow(0, 0, 1);
        assert_equal(layer.private().forward(x.narrow(0, 0, 1)), expected, 1e-6);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_group_norms_equal_the_loop_over_examples(
        batch_size in 1usize..5,
        groups in 1usize..4,
        per_group in 1usize..4,
        // Burn's own layer takes at most two values for a wrong rank.
        size in [3usize..6, 1usize..4],
    ) {
        for device in training_devices() {
            let channels = groups * per_group;
            let layer = group_norm(groups, channels, &device);
            check(
                &layer.clone().private(),
                &layer,
                numbers([batch_size, channels, size[0], size[1]], 3, &device),
                |model: &Private<GroupNorm>, x: Tensor<4>| losses(model.forward(x)),
                |model: &GroupNorm, x: Tensor<4>| losses(model.forward(x)),
            );
        }
    }
}
