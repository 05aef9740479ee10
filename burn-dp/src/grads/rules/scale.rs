//! Scales along one axis: the gain of every norm, and PReLU.
//!
//! For `output = input ∘ weight + bias`, both along one axis, the gradient of the weight of example
//! i is the sum of `input ∘ output_grad` over all other axes. PReLU scales only the negative values
//! of its input, so `min(input, 0)` takes the place of the input. The gradient is no larger than
//! the record; it is always instantiated. For the bias, see [`shift`].

use burn::tensor::Tensor;

use super::record::Record;
use super::rule::size;
use super::shift::{self, regroup};
use super::{Cost, Keep, Restriction, Rule};
use crate::ops;

/// Lifts the record of `input ∘ weight + bias`; only the negative values of the input are scaled if
/// `negative`.
pub(super) fn lift(record: &mut Record, negative: bool) {
    let output_grad = record.output_grad::<4>();
    shift::lift(record, &output_grad, 2);
    if let Some(input) = record.kept::<4>() {
        let input = if negative { input.clamp_max(0.0) } else { input };
        record.push(Scale { input, output_grad });
    }
}

/// A weight that scales its input along one axis.
#[derive(Clone, Debug)]
struct Scale {
    /// `[batch_size, outer, parameters, inner]`.
    input: Tensor<4>,
    /// `[batch_size, outer, parameters, inner]`.
    output_grad: Tensor<4>,
}

impl Rule for Scale {
    fn kept_values(&self) -> usize {
        size(self.input.shape()) + size(self.output_grad.shape())
    }

    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        let [_, outer, parameters, inner] = self.output_grad.dims();
        Cost { values: parameters, temporary: outer * parameters * inner, ..Cost::default() }
    }

    fn instantiate(&self) -> Tensor<2> {
        ops::axis_product_sums(self.input.clone(), self.output_grad.clone())
    }

    fn kept_sum(&self, coefficients: Tensor<1>, keep: &Keep) -> Tensor<1> {
        keep.weighted_rows(coefficients, self.instantiate())
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self {
            input: examples.apply(&self.input),
            output_grad: examples.apply(&self.output_grad),
        })
    }

    fn regroup(&self, group_size: usize) -> Option<Box<dyn Rule>> {
        Some(Box::new(Self {
            input: regroup(&self.input, group_size),
            output_grad: regroup(&self.output_grad, group_size),
        }))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param};
    use burn::nn::{
        BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNormConfig, LayerNorm,
        LayerNormConfig, PReluConfig, RmsNormConfig,
    };
    use burn::tensor::{Device, Tensor};
    use proptest::prelude::*;

    use crate::grads::oracle::{
        assert_equal, cases, check_layer, check_twins, losses, numbers, set,
    };
    use crate::nn::{IntoPrivate, Private};
    use crate::test_devices::training_devices;

    fn layer_norm(d_model: usize, bias: bool, device: &Device) -> LayerNorm {
        let mut layer = LayerNormConfig::new(d_model).with_bias(bias).init(device);
        layer.gamma = set(layer.gamma, 1);
        layer.beta = layer.beta.map(|beta| set(beta, 2));
        layer
    }

    fn check_norm<const D: usize>(layer: LayerNorm, x: Tensor<D>) {
        check_layer!(layer, x, |model, x| losses(model.forward(x)));
    }

    #[test]
    fn layer_norms_equal_the_loop_over_examples() {
        for device in training_devices() {
            for bias in [true, false] {
                check_norm(layer_norm(5, bias, &device), numbers([4, 5], 3, &device));
                check_norm(layer_norm(5, bias, &device), numbers([4, 3, 5], 4, &device));
                check_norm(layer_norm(5, bias, &device), numbers([1, 3, 2, 5], 4, &device));
            }
        }
    }

    #[test]
    fn partly_frozen_norms_equal_the_loop_over_examples() {
        for device in training_devices() {
            for (gamma, beta) in [(true, false), (false, true)] {
                let mut layer = layer_norm(4, true, &device);
                layer.gamma = layer.gamma.set_require_grad(gamma);
                layer.beta = layer.beta.map(|parameter| parameter.set_require_grad(beta));
                check_norm(layer, numbers([3, 2, 4], 5, &device));
            }
        }
    }

    #[test]
    fn two_uses_of_a_norm_are_summed_before_the_gradient_norm() {
        for device in training_devices() {
            let layer = layer_norm(4, true, &device);
            fn twice(apply: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>) -> Tensor<1> {
                let y = apply(x.clone()).tanh();
                losses(apply(y.narrow(1, 0, 2) + x.narrow(1, 1, 2)))
            }
            let x: Tensor<3> = numbers([4, 3, 4], 2, &device);
            check_layer!(layer, x, |model, x| twice(|x| model.forward(x), x));
        }
    }

    #[test]
    fn rms_norms_equal_the_loop_over_examples() {
        for device in training_devices() {
            let mut layer = RmsNormConfig::new(6).init(&device);
            layer.gamma = set(layer.gamma, 1);
            let x: Tensor<3> = numbers([4, 3, 6], 3, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(x)));
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
                let x: Tensor<4> = numbers(shape, 3, &device);
                check_layer!(layer, x, |model, x| losses(model.forward(x)));
            }
        }
    }

    #[test]
    fn instance_norms_equal_the_loop_over_examples() {
        for device in training_devices() {
            let mut layer = InstanceNormConfig::new(3).init(&device);
            layer.gamma = layer.gamma.map(|gamma| set(gamma, 1));
            layer.beta = layer.beta.map(|beta| set(beta, 2));
            let x: Tensor<3> = numbers([4, 3, 5], 3, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(x)));
        }
    }

    #[derive(Module, Debug)]
    struct AffineFree<G, I, L> {
        group: G,
        instance: I,
        last: L,
    }

    #[test]
    fn norms_without_parameters_are_passed_through() {
        for device in training_devices() {
            let group = GroupNormConfig::new(2, 4).with_affine(false).init(&device);
            let instance = InstanceNormConfig::new(4).with_affine(false).init(&device);
            let last = layer_norm(3, true, &device);
            let plain = AffineFree { group, instance, last };
            let private = AffineFree {
                group: plain.group.clone().private(),
                instance: plain.instance.clone().private(),
                last: plain.last.clone().private(),
            };
            let x: Tensor<3> = numbers([3, 4, 3], 3, &device);
            check_twins!(&private, &plain, x, |model, x| {
                let x = model.instance.forward(model.group.forward(x).tanh());
                losses(model.last.forward(x))
            });
        }
    }

    fn batch_norm(device: &Device) -> BatchNorm {
        let mut layer = BatchNormConfig::new(3).init(device);
        layer.gamma = set(layer.gamma, 1);
        layer.beta = set(layer.beta, 2);
        layer.running_mean.update(numbers([3], 3, device));
        layer.running_var.update(numbers([3], 4, device).abs() + 0.5);
        // An update takes effect at the next synchronization; a copy of the layer synchronizes.
        let _ = layer.running_mean.value_sync();
        let _ = layer.running_var.value_sync();
        layer
    }

    #[test]
    fn a_batch_norm_with_stored_statistics_equals_the_loop_over_examples() {
        for device in training_devices() {
            let private = Private::<BatchNorm>::with_stored_statistics(batch_norm(&device));
            let plain = private.clone().into_inner();
            let x: Tensor<4> = numbers([4, 3, 2, 2], 5, &device);
            check_twins!(&private, &plain, x, |model, x| losses(model.forward(x)));
        }
    }

    // Burn's norm without parameters would accept another number of channels.
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
                let x: Tensor<3> = numbers([4, 3, 5], 3, &device);
                check_layer!(layer, x, |model, x| losses(model.forward(x)));
            }
        }
    }

    /// A scale before a norm, whose gradient passes through the norm.
    #[derive(Module, Debug)]
    struct Scaled<M> {
        scale: Private<Param<Tensor<1>>>,
        norm: M,
    }

    #[test]
    fn the_input_gradient_of_a_norm_equals_burns() {
        for device in training_devices() {
            let scale: Param<Tensor<1>> = set(Param::from_tensor(Tensor::ones([5], &device)), 7);
            let norm = layer_norm(5, true, &device);
            let private = Scaled { scale: scale.clone().private(), norm: norm.clone().private() };
            let plain = Scaled { scale: scale.private(), norm };
            fn scaled<M>(model: &Scaled<M>, x: Tensor<3>) -> Tensor<3> {
                let scale: Tensor<2> = model.scale.forward(x.dims()[0]);
                x * scale.unsqueeze_dim(1)
            }
            let x = numbers([4, 2, 5], 3, &device);
            check_twins!(&private, &plain, x, |model, x| {
                losses(model.norm.forward(scaled(model, x)))
            });
        }
    }

    #[test]
    fn a_group_of_two_values_is_normalized_as_in_a_larger_batch() {
        for device in training_devices() {
            let layer = group_norm(1, 1, &device);
            let x = numbers([3, 1, 2], 3, &device);
            let expected = layer.forward(x.clone()).narrow(0, 0, 1);
            assert_equal(layer.private().forward(x.narrow(0, 0, 1)), expected, 1e-6);
        }
    }

    proptest! {
        #![proptest_config(cases(8))]

        #[test]
        fn random_group_norms_equal_the_loop_over_examples(
            batch_size in 1usize..5,
            groups in 1usize..4,
            per_group in 1usize..4,
            // Burn's own layer rejects two values or fewer as a wrong rank.
            size in [3usize..6, 1usize..4],
        ) {
            for device in training_devices() {
                let channels = groups * per_group;
                let layer = group_norm(groups, channels, &device);
                let x: Tensor<4> = numbers([batch_size, channels, size[0], size[1]], 3, &device);
                check_layer!(layer, x, |model, x| losses(model.forward(x)));
            }
        }
    }
}
