//! Low-rank adapters, with and without a packed base.

#![allow(clippy::unwrap_used)]

use burn::module::{Lora, Module, ParamGroup, QLora, Quantizer};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, LinearLayout};
use burn::tensor::quantization::{Calibration, QuantValue, ScaleDtype};
use burn::tensor::{DType, Device, Tensor};

use crate::grads::oracle::{self, TwoLayers, check, check_layer, check_twins, losses, numbers};
use crate::model::{LowRankAdapters, TrainableParameters, map_parameters};
use crate::nn::IntoPrivate;
use crate::test_devices::training_devices;

/// Sets the factors: Burn initializes `b` with zeros, where the gradient of `a` vanishes.
fn fill_factors<M: Module>(model: M) -> M {
    let mut seed = 0;
    map_parameters(model, |path, parameter| {
        path.split('.').any(|name| name == "lora").then(|| {
            seed += 1;
            let values = [parameter.value.shape().num_elements()];
            numbers(values, seed, &parameter.value.flat().device())
        })
    })
}

fn plain(layout: LinearLayout, device: &Device) -> TwoLayers<Linear> {
    let layer =
        |d_input, d_output| LinearConfig::new(d_input, d_output).with_layout(layout).init(device);
    TwoLayers { first: layer(6, 5), second: layer(5, 4) }
}

fn compare(plain: TwoLayers<Linear>) {
    let plain = fill_factors(plain);
    let device = plain.second.weight.base().device();
    let private = plain.private();
    let loss = |output: Tensor<3>| output.powi_scalar(2).sum_dim(2).sum_dim(1).reshape([-1]);
    check_twins!(&private, &plain, numbers([5, 3, 6], 3, &device), |model, x| {
        loss(model.second.forward(model.first.forward(x).tanh()))
    });

    let x = numbers::<3>([2, 3, 6], 4, &device);
    oracle::assert_equal(private.first.forward(x.clone()), plain.first.forward(x), 1e-5);
}

#[test]
fn the_factors_of_an_adapter_are_clipped_as_by_the_loop() {
    for device in training_devices() {
        for layout in [LinearLayout::Row, LinearLayout::Col] {
            let model = plain(layout, &device).apply_lora(Lora::new(2, 3.0));
            let trained = TrainableParameters::of(&model).unwrap();
            let paths: Vec<&str> = trained.iter().map(|info| info.path.as_str()).collect();
            let expected = [
                "first.weight.lora.a",
                "first.weight.lora.b",
                "second.weight.lora.a",
                "second.weight.lora.b",
            ];
            assert_eq!(paths, expected);
            compare(model);
        }
    }
}

#[test]
fn adapters_of_a_part_of_the_model_leave_the_rest_frozen_or_trained() {
    for device in training_devices() {
        let group = ParamGroup::from_path("first.weight");
        let lora = Lora::new(2, 3.0).set_param_group(group.clone());
        let model = plain(LinearLayout::Row, &device).apply_lora(lora);
        assert_eq!(TrainableParameters::of(&model).unwrap().iter().count(), 2);
        compare(model.clone());

        // Everything except the adapted weight: biases and the second layer are also trained.
        let model = model.unfreeze_group(ParamGroup::all().exclude(group));
        assert_eq!(TrainableParameters::of(&model).unwrap().iter().count(), 5);
        compare(model.clone());

        // The adapted weight too.
        let model = model.unfreeze();
        assert_eq!(TrainableParameters::of(&model).unwrap().iter().count(), 6);
        compare(model);
    }
}

#[test]
fn factors_of_a_packed_base_are_clipped_as_by_the_loop() {
    for device in training_devices() {
        let scheme = device.settings().quantization.scheme.with_value(QuantValue::Q8S);
        let quantizer = Quantizer::new(Calibration::MinMax, scheme);
        let layer =
            |d_input, d_output| LinearConfig::new(d_input, d_output).with_bias(false).init(&device);
        // CubeCL packs four values of a row into one word.
        let model = TwoLayers { first: layer(6, 8), second: layer(8, 4) };
        let model = model.apply_qlora(QLora::new(Lora::new(2, 3.0), quantizer));
        assert!(matches!(model.first.weight.base().dtype(), DType::QFloat(_)));
        compare(model);
    }
}

#[test]
fn biases_beside_a_packed_base_are_clipped_as_by_the_loop() {
    for device in training_devices() {
        let scheme = device.settings().quantization.scheme.with_value(QuantValue::Q8S);
        let adapters = LowRankAdapters::new()
            .with_layers(ParamGroup::from_predicate("first"), 2, 3.0)
            .with_trained(ParamGroup::from_predicate("bias"))
            .with_packed_base(scheme);
        let layer = |d_input, d_output| LinearConfig::new(d_input, d_output).init(&device);
        let model = TwoLayers { first: layer(6, 8), second: layer(8, 4) };
        let model = adapters.attach(model).unwrap();
        assert!(matches!(model.first.weight.base().dtype(), DType::QFloat(_)));
        assert_eq!(TrainableParameters::of(&model).unwrap().iter().count(), 4);
        compare(model);
    }
}

#[test]
fn factors_over_blocks_of_four_bits_are_clipped_as_by_the_loop() {
    let device = Device::flex().autodiff();
    let scheme = device.settings().quantization.scheme.with_value(QuantValue::Q4S);
    let adapters = LowRankAdapters::new()
        .with_layers(ParamGroup::from_predicate("first"), 2, 3.0)
        .with_packed_base(scheme.per_block([8], ScaleDtype::F32));
    let layer = |d_input, d_output| LinearConfig::new(d_input, d_output).init(&device);
    let model = TwoLayers { first: layer(6, 16), second: layer(16, 4) };
    let model = adapters.attach(model).unwrap();
    assert!(matches!(model.first.weight.base().dtype(), DType::QFloat(_)));
    compare(model);
}

#[test]
fn packed_base_without_an_adapter_gives_the_gradient_of_its_input() {
    for device in training_devices() {
        let scheme = device.settings().quantization.scheme.with_value(QuantValue::Q8S);
        let mut quantizer = Quantizer::new(Calibration::MinMax, scheme);
        let layer = |d_input, d_output| LinearConfig::new(d_input, d_output).init(&device);
        let mut packed = layer(8, 4).no_grad();
        packed.weight = packed.weight.quantize_weights(&mut quantizer);
        let dense = packed.weight.base().dequantize();
        let mut unpacked = packed.clone();
        unpacked.weight = unpacked.weight.map(|_| dense);
        let first = layer(6, 8);
        let private = TwoLayers { first: first.clone().private(), second: packed.private() };
        let plain = TwoLayers { first, second: unpacked };
        check_twins!(&private, &plain, numbers([5, 3, 6], 3, &device), |model, x| losses(
            model.second.forward(model.first.forward(x).tanh())
        ));
    }
}

#[test]
fn adapters_inside_of_an_attention_layer_are_clipped_as_by_the_loop() {
    use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig};
    for device in training_devices() {
        let config = MultiHeadAttentionConfig::new(6, 2).with_dropout(0.0);
        let plain = config.init(&device).apply_lora(Lora::new(2, 3.0));
        let plain = fill_factors(plain);
        let private = plain.clone().private();
        assert!(crate::model::validate(&private).is_ok());
        let loss = |output: Tensor<3>| output.powi_scalar(2).sum_dim(2).sum_dim(1).reshape([-1]);
        check(
            &private,
            &plain,
            numbers([3, 4, 6], 3, &device),
            |model, x| loss(model.forward(crate::nn::MhaInput::self_attn(x)).context),
            |model, x| loss(model.forward(MhaInput::self_attn(x)).context),
        );
    }
}

fn adapted<M: Module>(layer: M) -> M {
    let adapters = LowRankAdapters::new().with_layers(ParamGroup::all(), 2, 3.0);
    fill_factors(adapters.attach(layer).unwrap())
}

/// Checks the factors of a convolution with an adapter, alone and with the bias.
macro_rules! check_adapted {
    ($config:expr, $input:expr, $device:expr) => {{
        let layer = adapted($config.init($device));
        let biased = layer.clone().unfreeze_group(ParamGroup::from_path("bias"));
        for layer in [layer, biased] {
            check_layer!(layer, numbers($input, 23, $device), |model, x| losses(model.forward(x)));
        }
    }};
}

#[test]
fn adapters_of_convolutions_are_clipped_as_by_the_loop() {
    use burn::nn::conv::{Conv1dConfig, Conv2dConfig, Conv3dConfig};
    use burn::nn::{PaddingConfig1d, PaddingConfig2d};
    for device in training_devices() {
        let same = PaddingConfig1d::Same;
        check_adapted!(Conv1dConfig::new(4, 6, 3).with_padding(same), [3, 4, 7], &device);
        check_adapted!(Conv1dConfig::new(4, 6, 2).with_groups(2), [3, 4, 7], &device);
        let uneven = PaddingConfig2d::Explicit(1, 0, 2, 1);
        let config = Conv2dConfig::new([4, 6], [3, 2]).with_stride([2, 1]).with_dilation([1, 2]);
        let config = config.with_padding(uneven);
        check_adapted!(config, [3, 4, 6, 5], &device);
        check_adapted!(config.with_groups(2), [1, 4, 6, 5], &device);
        check_adapted!(Conv3dConfig::new([2, 3], [1, 2, 2]), [2, 2, 2, 3, 3], &device);
    }
}

#[test]
fn adapters_of_transposed_convolutions_are_clipped_as_by_the_loop() {
    use burn::nn::conv::{ConvTranspose1dConfig, ConvTranspose2dConfig, ConvTranspose3dConfig};
    for device in training_devices() {
        check_adapted!(ConvTranspose1dConfig::new([4, 2], 3).with_stride(2), [3, 4, 4], &device);
        let config = ConvTranspose2dConfig::new([4, 6], [3, 2]).with_padding([1, 0]);
        check_adapted!(config, [3, 4, 3, 3], &device);
        check_adapted!(config.with_groups(2), [3, 4, 3, 3], &device);
        check_adapted!(ConvTranspose3dConfig::new([2, 3], [1, 2, 2]), [2, 2, 2, 2, 2], &device);
    }
}

#[test]
fn adapters_of_a_tied_embedding_are_clipped_as_by_the_loop() {
    for device in training_devices() {
        let plain = adapted(EmbeddingConfig::new(7, 4).init(&device));
        let ids = |x: Tensor<2>| ((x + 1.0) * 3.5).floor().int();
        check(
            &plain.clone().private(),
            &plain,
            numbers([3, 5], 3, &device),
            |model, x| losses(model.attend(model.forward(ids(x)).tanh())),
            |model: &Embedding, x| {
                let hidden = model.forward(ids(x)).tanh();
                losses(hidden.matmul(model.weight.val().transpose().unsqueeze()))
            },
        );
    }
}
