use burn::module::{Module, ParamGroup};
use burn::nn::activation::ActivationConfig;
use burn::nn::transformer::{self, TransformerDecoderConfig, TransformerEncoderConfig};
use burn::tensor::{Bool, Device, Tensor};

use crate::grads::oracle::{assert_equal, check, losses, numbered, numbers};
use crate::nn::{
    IntoPrivate, Private, PrivateLayer, TransformerDecoderInput, TransformerEncoderInput,
};
use crate::test_devices::{devices, training_devices};

type Encoder = transformer::TransformerEncoder;
type Decoder = transformer::TransformerDecoder;
use transformer::TransformerDecoderInput as BurnDecoderInput;
use transformer::TransformerEncoderInput as BurnEncoderInput;

const D_MODEL: usize = 4;
const POSITIONS: usize = 3;

fn causal(batch_size: usize, device: &Device) -> Tensor<3, Bool> {
    Tensor::<3>::ones([batch_size, POSITIONS, POSITIONS], device).triu(1).greater_elem(0.5)
}

/// Masks the last position.
fn padding(batch_size: usize, device: &Device) -> Tensor<2, Bool> {
    let hidden: Vec<bool> =
        (0..batch_size * POSITIONS).map(|i| i % POSITIONS == POSITIONS - 1).collect();
    Tensor::<1, Bool>::from_data(hidden.as_slice(), device).reshape([batch_size, POSITIONS])
}

macro_rules! encode {
    ($input:ident, $masked:expr) => {
        |model, x: Tensor<3>| {
            let (batch_size, device) = (x.dims()[0], x.device());
            let input = $input::new(x);
            let input = match $masked {
                true => input
                    .mask_pad(padding(batch_size, &device))
                    .mask_attn(causal(batch_size, &device)),
                false => input,
            };
            model.forward(input)
        }
    };
}

/// Target and memory are concatenated along the axis of positions.
macro_rules! decode {
    ($input:ident, $masked:expr) => {
        |model, x: Tensor<3>| {
            let (batch_size, device) = (x.dims()[0], x.device());
            let target = x.clone().narrow(1, 0, POSITIONS);
            let input = $input::new(target, x.narrow(1, POSITIONS, POSITIONS));
            let input = match $masked {
                true => input
                    .target_mask_pad(padding(batch_size, &device))
                    .target_mask_attn(causal(batch_size, &device))
                    .memory_mask_pad(padding(batch_size, &device))
                    .memory_mask_attn(causal(batch_size, &device)),
                false => input,
            };
            model.forward(input)
        }
    };
}

fn check_layer<M: PrivateLayer>(
    layer: &M,
    x: Tensor<3>,
    private: impl Fn(&Private<M>, Tensor<3>) -> Tensor<3>,
    plain: impl Fn(&M, Tensor<3>) -> Tensor<3>,
) {
    let twin = layer.clone().private();
    assert_equal(private(&twin, x.clone()), plain(layer, x.clone()), 1e-4);
    check(
        &twin,
        layer,
        x,
        |model, x| losses(private(model, x)),
        |model, x| losses(plain(model, x)),
    );
}

fn encoder_config(layers: usize) -> TransformerEncoderConfig {
    TransformerEncoderConfig::new(D_MODEL, 6, 2, layers).with_dropout(0.0)
}

fn decoder_config(layers: usize) -> TransformerDecoderConfig {
    TransformerDecoderConfig::new(D_MODEL, 6, 2, layers).with_dropout(0.0)
}

#[test]
fn every_option_of_an_encoder_equals_the_loop_over_examples() {
    for device in training_devices() {
        for (config, masked) in [
            (encoder_config(2), false),
            (encoder_config(1).with_norm_first(true), true),
            (
                encoder_config(1)
                    .with_quiet_softmax(true)
                    .with_activation(ActivationConfig::Relu)
                    .with_layer_norm_eps(1e-3),
                true,
            ),
        ] {
            let layer: Encoder = numbered(config.init(&device), 4);
            let x = numbers([3, POSITIONS, D_MODEL], 6, &device);
            check_layer(
                &layer,
                x.clone(),
                encode!(TransformerEncoderInput, masked),
                encode!(BurnEncoderInput, masked),
            );
            let (one, x) = (layer.layers[0].clone(), x.narrow(0, 0, 1));
            check_layer(
                &one,
                x,
                |model, x| model.forward(x, None, None),
                |model, x| model.forward(x, None, None),
            );
        }
    }
}

#[test]
fn every_option_of_a_decoder_equals_the_loop_over_examples() {
    for device in training_devices() {
        for (config, masked) in [
            (decoder_config(2), false),
            (decoder_config(1).with_norm_first(true), true),
            (
                decoder_config(1)
                    .with_quiet_softmax(true)
                    .with_activation(ActivationConfig::Relu)
                    .with_layer_norm_eps(1e-3),
                true,
            ),
        ] {
            let layer: Decoder = numbered(config.init(&device), 4);
            check_layer(
                &layer,
                numbers([3, 2 * POSITIONS, D_MODEL], 6, &device),
                decode!(TransformerDecoderInput, masked),
                decode!(BurnDecoderInput, masked),
            );
        }
    }
}

#[test]
fn frozen_parts_of_a_transformer_stay_out_of_the_norm() {
    for device in training_devices() {
        let layer: Encoder = numbered(encoder_config(1).init(&device), 4);
        for group in [
            ParamGroup::ids_from_module(layer.layers[0].mha.clone()),
            ParamGroup::ids_from_module(layer.layers[0].norm_1.clone()),
            ParamGroup::ids_from_module(layer.layers[0].pwff.clone()),
        ] {
            let layer = layer.clone().set_require_grad_group(group, false);
            check_layer(
                &layer,
                numbers([2, POSITIONS, D_MODEL], 6, &device),
                encode!(TransformerEncoderInput, false),
                encode!(BurnEncoderInput, false),
            );
        }
    }
}

#[test]
fn decoding_position_by_position_equals_burns() {
    for device in devices() {
        for norm_first in [false, true] {
            let config = encoder_config(2).with_norm_first(norm_first);
            let layer: Encoder = numbered(config.init(&device), 4);
            let twin = layer.clone().private();
            let x = numbers([2, POSITIONS, D_MODEL], 6, &device);
            let (mut cache, mut burns) =
                (twin.new_autoregressive_cache(), layer.new_autoregressive_cache());
            for known in 1..=POSITIONS {
                let seen = x.clone().narrow(1, 0, known);
                let input = TransformerEncoderInput::new(seen.clone());
                assert_equal(
                    twin.forward_autoregressive_inference(input, &mut cache),
                    layer.forward_autoregressive_inference(BurnEncoderInput::new(seen), &mut burns),
                    1e-4,
                );
            }

            let config = decoder_config(2).with_norm_first(norm_first);
            let layer: Decoder = numbered(config.init(&device), 4);
            let twin = layer.clone().private();
            let memory = numbers([2, 5, D_MODEL], 7, &device);
            let (mut cache, mut burns) =
                (twin.new_autoregressive_cache(), layer.new_autoregressive_cache());
            for known in 1..=POSITIONS {
                let seen = x.clone().narrow(1, 0, known);
                let input = TransformerDecoderInput::new(seen.clone(), memory.clone());
                let expected = BurnDecoderInput::new(seen, memory.clone());
                assert_equal(
                    twin.forward_autoregressive_inference(input, &mut cache),
                    layer.forward_autoregressive_inference(expected, &mut burns),
                    1e-4,
                );
            }
        }
    }
}
