use burn::module::Module;
use burn::nn::GateController;
use burn::nn::Initializer;
use burn::nn::activation::{
    Activation, ActivationConfig, CeluConfig, EluConfig, HardShrinkConfig, HardSigmoidConfig,
    LeakyReluConfig, PReluConfig, ShrinkConfig, SoftShrinkConfig, SoftplusConfig, SwiGluConfig,
    ThresholdedReluConfig,
};
use burn::nn::norm::{
    BatchNorm, BatchNormConfig, GroupNormConfig, InstanceNormConfig, LayerNormConfig,
    Normalization, NormalizationConfig, RmsNormConfig,
};
use burn::tensor::Tensor;

use crate::grads::oracle::{assert_equal, check_layer, losses, numbered, numbers};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

#[test]
fn every_activation_equals_the_loop_over_examples() {
    for device in training_devices() {
        for config in [
            ActivationConfig::PRelu(PReluConfig::new()),
            ActivationConfig::PRelu(PReluConfig::new().with_num_parameters(3)),
            ActivationConfig::SwiGlu(SwiGluConfig::new(4, 4).with_bias(true)),
        ] {
            let layer: Activation = numbered(config.init(&device), 3);
            let x: Tensor<3> = numbers([3, 3, 4], 5, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(x)));
        }
        for config in [
            ActivationConfig::Identity,
            ActivationConfig::Gelu,
            ActivationConfig::GeluApproximate,
            ActivationConfig::Relu,
            ActivationConfig::LeakyRelu(LeakyReluConfig::new()),
            ActivationConfig::Selu,
            ActivationConfig::Sigmoid,
            ActivationConfig::Tanh,
            ActivationConfig::HardSigmoid(HardSigmoidConfig::new()),
            ActivationConfig::HardSwish,
            ActivationConfig::Softplus(SoftplusConfig::new()),
            ActivationConfig::Softsign,
            ActivationConfig::Elu(EluConfig::new()),
            ActivationConfig::Celu(CeluConfig::new()),
            ActivationConfig::ThresholdedRelu(ThresholdedReluConfig::new()),
            ActivationConfig::HardShrink(HardShrinkConfig::new()),
            ActivationConfig::SoftShrink(SoftShrinkConfig::new()),
            ActivationConfig::Shrink(ShrinkConfig::new()),
        ] {
            let layer = config.init(&device);
            let x = numbers([2, 3], 5, &device);
            // Native kernels round differently.
            let tolerance = match layer {
                Activation::Sigmoid(_) | Activation::Tanh(_) => 3.0 * f64::from(f32::EPSILON),
                _ => 0.0,
            };
            assert_equal(layer.clone().private().forward(x.clone()), layer.forward(x), tolerance);
        }
    }
}

#[test]
fn every_normalization_equals_the_loop_over_examples() {
    for device in training_devices() {
        for config in [
            NormalizationConfig::from(GroupNormConfig::new(2, 4)),
            InstanceNormConfig::new(4).into(),
            LayerNormConfig::new(4).into(),
            RmsNormConfig::new(4).into(),
            NormalizationConfig::Batch(BatchNormConfig::new(4)),
            NormalizationConfig::Identity,
        ] {
            let layer = match config.init(&device) {
                // Its statistics are not parameters.
                Normalization::Batch(norm) => {
                    let norm = Private::<BatchNorm>::with_stored_statistics(norm);
                    Normalization::Batch(norm.into_inner())
                }
                layer => numbered(layer, 3),
            };
            if layer.num_params() == 0 {
                let x = numbers([3, 4, 4], 5, &device);
                assert_equal(layer.clone().private().forward(x.clone()), layer.forward(x), 0.0);
                continue;
            }
            let x: Tensor<3> = numbers([3, 4, 4], 5, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(x)));
        }
    }
}

#[test]
fn one_gate_equals_the_loop_over_examples() {
    for device in training_devices() {
        let initializer = Initializer::XavierNormal { gain: 1.0 };
        let layer = numbered(GateController::new(5, 3, true, initializer, &device), 2);
        let hidden = |x: &Tensor<2>| x.clone().narrow(1, 1, 3);
        let x = numbers([3, 5], 5, &device);
        check_layer!(layer, x, |model, x| losses(model.gate_product(x.clone(), hidden(&x))));
    }
}
