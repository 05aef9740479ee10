//! Convolutions with standardized weights.
//!
//! A step changes the stored weight, so its gradient is clipped. The standardization of the current
//! weight is the same for all examples: its Jacobian maps the gradient that the rule of the
//! convolution computes for the standardized weight, example by example before the norm, and once
//! for the weighted sum.
//!
//! # References
//!
//! Qiao et al., Micro-batch training with batch-channel normalization and weight standardization,
//! 2019; Brock, De, Smith, Characterizing signal propagation to close the performance gap in
//! unnormalized ResNets, 2021 (the scale).

use burn::tensor::Tensor;

use super::ConvWeight;
use super::columns::ColumnRule;
use crate::grads::rules::record::Record;
use crate::grads::rules::{Cost, Magnitudes, Restriction, Rule, shift};
use crate::ops::{self, Convolution};

/// Lifts the record of a convolution of two axes with a standardized weight.
pub(in crate::grads::rules) fn lift(record: &mut Record, convolution: Convolution, epsilon: f64) {
    let output_grad = record.output_grad::<4>();
    shift::lift(record, &output_grad, 1);
    if let (Some(input), Some(stored), Some(weight)) =
        (record.kept(), record.kept(), record.weight())
    {
        let conv = ConvWeight::new(convolution, weight, input, output_grad);
        record.push(StandardizedConvWeight { conv, stored, epsilon });
    }
}

/// The weight of a convolution that is standardized before its use.
#[derive(Clone, Debug)]
struct StandardizedConvWeight {
    /// The rule of the standardized weight.
    conv: ConvWeight<4>,
    /// The weight before it is standardized,
    /// `[channels_out, channels_in / groups, kernel_height, kernel_width]`.
    stored: Tensor<4>,
    epsilon: f64,
}

impl StandardizedConvWeight {
    /// Returns the gradients of the stored weight from the gradients of the standardized one:
    /// `[rows, values]`.
    fn mapped(&self, gradients: Tensor<2>) -> Tensor<2> {
        ops::standardized_gradients(gradients, self.stored.clone(), self.epsilon)
    }
}

impl Rule for StandardizedConvWeight {
    fn kept_values(&self) -> usize {
        Rule::kept_values(&self.conv)
    }

    fn batch_size(&self) -> usize {
        Rule::batch_size(&self.conv)
    }

    fn cost(&self) -> Cost {
        let cost = self.conv.cost();
        // The gradients of the standardized weight, and their components along it.
        let temporary = cost.temporary + 2 * cost.values;
        Cost { ghost_flops: None, ghost_temporary: 0, temporary, ..cost }
    }

    /// Bounds the terms by the terms of the standardized weight: apart from a factor for each
    /// output channel, which is included in the pixels, the Jacobian is a projection. It adds all
    /// values of a kernel twice: for their mean, and for their component along the weight.
    fn magnitudes(&self) -> Option<Magnitudes> {
        let [channels, ..] = self.stored.dims();
        let kernels: Tensor<2> = self.stored.clone().flatten(1, 3);
        let [_, values] = kernels.dims();
        let centered = kernels.clone() - kernels.mean_dim(1);
        let scale = centered.square().sum_dim(1).clamp_min(self.epsilon).sqrt().recip();
        let pixels = self.conv.pixels.clone() * scale.reshape([1, channels, 1, 1]);
        let magnitudes = Rule::magnitudes(&ConvWeight { pixels, ..self.conv.clone() })?;
        // Few operations on single values: the mean and the component are divided, multiplied and
        // subtracted, and the rest is scaled.
        let roundings = magnitudes.roundings + 2 * values + 8;
        Some(Magnitudes { roundings, ..magnitudes })
    }

    fn instantiate(&self) -> Tensor<2> {
        self.mapped(Rule::instantiate(&self.conv))
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let sum = Rule::weighted_sum(&self.conv, coefficients);
        self.mapped(sum.unsqueeze()).flatten(0, 1)
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self { conv: ColumnRule::restrict(&self.conv, examples), ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::{GroupNorm, GroupNormConfig, PaddingConfig2d};
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Shape, Tensor};
    use proptest::prelude::*;

    use super::{ConvWeight, Convolution, Rule, StandardizedConvWeight};
    use crate::grads::oracle::{
        assert_equal, cases, check_layer, check_twins, losses, numbered, numbers,
    };
    use crate::nn::{IntoPrivate, Private, StandardizedConv2d};
    use crate::test_devices::{devices, training_devices};

    fn layer(config: &Conv2dConfig, device: &Device) -> StandardizedConv2d {
        numbered(StandardizedConv2d::new(config.init(device)), 17)
    }

    #[test]
    fn every_option_of_a_standardized_convolution_equals_the_loop_over_examples() {
        let config = || Conv2dConfig::new([4, 6], [3, 2]);
        for device in training_devices() {
            let x = |batch_size| numbers([batch_size, 4, 8, 9], 23, &device);
            for config in [
                config(),
                config().with_bias(false),
                config().with_stride([2, 3]),
                config().with_dilation([2, 3]),
                config().with_groups(2),
                Conv2dConfig::new([4, 4], [3, 3]).with_groups(4),
                config().with_padding(PaddingConfig2d::Explicit(1, 2, 1, 2)),
                config().with_padding(PaddingConfig2d::Same).with_stride([2, 2]).with_groups(2),
                Conv2dConfig::new([4, 5], [1, 1]),
                Conv2dConfig::new([4, 5], [8, 9]),
            ] {
                let layer = layer(&config, &device);
                let plain = layer.clone().without_gain();
                check_layer!(layer, x(3), |model, x| losses(model.forward(x)));
                check_layer!(plain, x(1), |model, x| losses(model.forward(x)));
            }
            // Some kernels are divided by epsilon.
            let layer = layer(&config(), &device).with_epsilon(8.0).expect("a positive number");
            check_layer!(layer, x(3), |model, x| losses(model.forward(x)));
        }
    }

    #[test]
    fn two_uses_of_a_standardized_convolution_are_summed_before_the_norm() {
        for device in training_devices() {
            let layer = layer(&Conv2dConfig::new([3, 3], [3, 3]), &device);
            let x = numbers([3, 3, 9, 8], 6, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(model.forward(x).tanh())));
        }
    }

    #[test]
    fn partly_frozen_standardized_convolutions_equal_the_loop_over_examples() {
        for device in training_devices() {
            for frozen in ["weight", "gain", "bias"] {
                let mut layer = layer(&Conv2dConfig::new([2, 3], [3, 3]), &device);
                let frozen_is = |name| frozen == name;
                layer.weight = layer.weight.set_require_grad(!frozen_is("weight"));
                let set = |parameter: burn::module::Param<Tensor<1>>, name| {
                    parameter.set_require_grad(!frozen_is(name))
                };
                layer.gain = layer.gain.map(|gain| set(gain, "gain"));
                layer.bias = layer.bias.map(|bias| set(bias, "bias"));
                let x = numbers([3, 2, 6, 5], 6, &device);
                check_layer!(layer, x, |model, x| losses(model.forward(x)));
            }
        }
    }

    #[test]
    fn terms_are_those_of_the_convolution_with_pixels_over_the_norms_of_kernels() {
        for device in devices() {
            let options = Convolution::Conv2d(ConvOptions::new([1, 1], [0, 0], [1, 1], 1));
            let (image, pixels) =
                (numbers([2, 1, 1, 4], 1, &device), numbers([2, 2, 1, 2], 2, &device));
            let conv = ConvWeight::<4>::new(options, Shape::new([2, 1, 1, 3]), image, pixels);
            // Without their means 2 and -1, the kernels have the squared norms 2 and 8.
            let kernels = [[[[1.0f32, 2.0, 3.0]]], [[[1.0, -1.0, -3.0]]]];
            let stored = Tensor::from_floats(kernels, &device);
            let rule = StandardizedConvWeight { conv: conv.clone(), stored, epsilon: 1e-3 };
            assert_eq!(rule.batch_size(), 2);
            let found = Rule::magnitudes(&rule).expect("a bound");
            let norms = Tensor::<4>::from_floats([[[[2f32.sqrt()]], [[8f32.sqrt()]]]], &device);
            let scaled = ConvWeight { pixels: conv.pixels.clone() / norms, ..conv };
            let expected = Rule::magnitudes(&scaled).expect("a bound");
            assert_equal(found.squared, expected.squared, 1e-5);
            // Two sums over the three values of a kernel, and single operations.
            assert_eq!(found.roundings, expected.roundings + 2 * 3 + 8);
        }
    }

    #[derive(Module, Debug)]
    struct Network<S, C, N> {
        first: S,
        norm: N,
        second: S,
        /// The same layer as `second`.
        tied: S,
        last: C,
    }

    type PrivateNetwork = Network<Private<StandardizedConv2d>, Private<Conv2d>, Private<GroupNorm>>;

    #[test]
    fn tied_standardized_convolutions_among_other_layers_equal_the_loop() {
        for device in training_devices() {
            let second = layer(&Conv2dConfig::new([4, 4], [2, 2]), &device);
            let plain = Network {
                first: layer(&Conv2dConfig::new([1, 4], [3, 3]).with_stride([2, 2]), &device),
                norm: numbered(GroupNormConfig::new(2, 4).init(&device), 3),
                tied: second.clone(),
                second,
                last: numbered(Conv2dConfig::new([4, 2], [1, 1]).init(&device), 5),
            };
            let private: PrivateNetwork = Network {
                first: plain.first.clone().private(),
                norm: plain.norm.clone().private(),
                second: plain.second.clone().private(),
                tied: plain.tied.clone().private(),
                last: plain.last.clone().private(),
            };
            assert!(crate::model::validate(&private).is_ok());
            check_twins!(&private, &plain, numbers([5, 1, 11, 12], 9, &device), |model, x| {
                let x = model.norm.forward(model.first.forward(x).tanh());
                let x = model.tied.forward(model.second.forward(x).tanh());
                losses(model.last.forward(x))
            });
        }
    }

    proptest! {
        #![proptest_config(cases(8))]

        #[test]
        fn random_standardized_convolutions_equal_the_loop_over_examples(
            batch_size in 1usize..5,
            groups in 1usize..3,
            channels in [1usize..4, 1usize..4],
            kernel in [1usize..4, 1usize..4],
            stride in [1usize..4, 1usize..4],
            dilation in [1usize..3, 1usize..3],
            padding in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
            size in [7usize..12, 7usize..12],
            bias: bool,
            gain: bool,
        ) {
            // Mean zero and norm one leave a kernel of few values little freedom: the gradients of
            // its values nearly cancel, and what is left is mostly their rounding.
            prop_assume!(channels[0] * kernel[0] * kernel[1] >= 8);
            let channels = channels.map(|channels| channels * groups);
            let [top, left, bottom, right] = padding;
            let config = Conv2dConfig::new(channels, kernel)
                .with_stride(stride)
                .with_dilation(dilation)
                .with_groups(groups)
                .with_padding(PaddingConfig2d::Explicit(top, left, bottom, right))
                .with_bias(bias);
            for device in training_devices() {
                let layer = layer(&config, &device);
                let layer = if gain { layer } else { layer.without_gain() };
                let x = numbers([batch_size, channels[0], size[0], size[1]], 23, &device);
                check_layer!(layer, x, |model, x| losses(model.forward(x)));
            }
        }
    }
}
