//! Models in half precision: their norms and sums are in single precision.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention::{self, MultiHeadAttentionConfig};
use burn::nn::conv::{
    Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig, ConvTranspose1d,
    ConvTranspose1dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
    ConvTranspose3dConfig,
};
use burn::nn::transformer::{self, TransformerEncoderConfig};
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{
    BiLstm, BiLstmConfig, Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig, Gru, GruConfig,
    InstanceNorm, InstanceNormConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, PRelu,
    PReluConfig, RmsNorm, RmsNormConfig, Rnn, RnnConfig, SwiGlu, SwiGluConfig,
};
use burn::tensor::{DType, Device, Tensor};

use crate::clipping::{Clipping, FlatClipping};
use crate::grads::oracle::{Flat, backwards, clipped_by_loop, flat_sum, norm, numbers};
use crate::nn::{IntoPrivate, MhaInput, Private, PrivateLayer, TransformerEncoderInput};
use crate::test_devices::training_devices;

#[derive(Module, Debug)]
struct Half<E, N, L> {
    embedding: E,
    norm: N,
    fc: L,
}

type PrivateHalf = Half<Private<Embedding>, Private<LayerNorm>, Private<Linear>>;
type PlainHalf = Half<Embedding, LayerNorm, Linear>;

/// Returns the devices that compute in this precision, at least Flex.
fn devices_with(dtype: DType) -> Vec<Device> {
    let devices = training_devices();
    assert!(devices[0].supports_dtype(dtype), "{dtype:?} on {:?}", devices[0]);
    devices.into_iter().filter(|device| device.supports_dtype(dtype)).collect()
}

fn halve<const D: usize>(parameter: Param<Tensor<D>>, dtype: DType) -> Param<Tensor<D>> {
    parameter.map(|tensor| {
        numbers(tensor.dims(), 1, &tensor.device()).cast(dtype).detach().require_grad()
    })
}

fn models(dtype: DType, device: &Device) -> (PrivateHalf, PlainHalf) {
    let mut plain = Half {
        embedding: EmbeddingConfig::new(6, 8).init(device),
        norm: LayerNormConfig::new(8).init(device),
        fc: LinearConfig::new(8, 3).init(device),
    };
    plain.embedding.weight = halve(plain.embedding.weight, dtype);
    plain.norm.gamma = halve(plain.norm.gamma, dtype);
    plain.norm.beta = plain.norm.beta.map(|beta| halve(beta, dtype));
    plain.fc.weight = halve(plain.fc.weight, dtype);
    plain.fc.bias = plain.fc.bias.map(|bias| halve(bias, dtype));
    let private = Half {
        embedding: plain.embedding.clone().private(),
        norm: plain.norm.clone().private(),
        fc: plain.fc.clone().private(),
    };
    (private, plain)
}

fn losses<const D: usize>(output: Tensor<D>) -> Tensor<1> {
    let dims = output.dims();
    let batch_size = dims[0];
    output
        .cast(DType::F32)
        .reshape([batch_size, dims[1..].iter().product()])
        .square()
        .mean_dim(1)
        .reshape([batch_size])
}

fn largest_difference(found: &Flat, expected: &Flat) -> f64 {
    let differences = expected.iter().flat_map(|(id, expected)| {
        found[id].iter().zip(expected).map(|(found, expected)| (found - expected).abs())
    });
    differences.fold(0.0, f64::max)
}

#[test]
fn models_in_half_precision_equal_the_loop_over_examples() {
    for (dtype, tolerance) in [(DType::F16, 1e-2), (DType::BF16, 5e-2)] {
        for device in devices_with(dtype) {
            let (private, plain) = models(dtype, &device);
            let x = ((numbers([4, 5], 11, &device) + 1.0) * 3.0).floor().int();
            for clipping_norm in [1e-2, 1e3] {
                let expected = clipped_by_loop(&plain, 4, clipping_norm, |model, example| {
                    let x = x.clone().narrow(0, example, 1);
                    losses(model.fc.forward(model.norm.forward(model.embedding.forward(x))))
                });
                for backward in backwards() {
                    let hidden = private.norm.forward(private.embedding.forward(x.clone()));
                    let losses = losses(private.fc.forward(hidden));
                    let grads = backward.run(losses, &private).unwrap();
                    let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                    let found = flat_sum(sum);
                    let difference = largest_difference(&found, &expected);
                    assert!(
                        difference <= tolerance * norm(&expected),
                        "{dtype:?}: {difference}, norm {}",
                        norm(&expected)
                    );
                    assert!(norm(&found) <= 4.0 * clipping_norm * (1.0 + 1e-6));
                }
            }
        }
    }
}

/// Sets parameters that a number determines, rounded to `dtype` and stored as `stored`.
struct Rounded {
    dtype: DType,
    stored: DType,
    seed: u64,
}

impl ModuleMapper for Rounded {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.seed += 1;
        param.map(|old| {
            let values = numbers(old.dims(), self.seed, &old.device()) * 0.5;
            values.cast(self.dtype).cast(self.stored).detach().require_grad()
        })
    }
}

/// Compares a layer in half precision with the loop over single examples on Burn's layer with the
/// same values in single precision. The difference is the rounding of the forward and backward
/// pass.
fn check_half<M: PrivateLayer, const D: usize>(
    shape: [usize; D],
    init: impl Fn(&Device) -> M,
    private: impl Fn(&Private<M>, Tensor<D>) -> Tensor<D>,
    plain: impl Fn(&M, Tensor<D>) -> Tensor<D>,
) {
    for (dtype, tolerance) in [(DType::F16, 1e-2), (DType::BF16, 8e-2)] {
        for device in devices_with(dtype) {
            let layer = init(&device);
            let with = |stored| layer.clone().map(&mut Rounded { dtype, stored, seed: 100 });
            let (twin, layer) = (with(dtype).private(), with(DType::F32));
            let x = numbers(shape, 11, &device).cast(dtype);
            for clipping_norm in [1e-2, 1e3] {
                let expected =
                    clipped_by_loop(&layer, shape[0], clipping_norm, |layer, example| {
                        losses(plain(layer, x.clone().narrow(0, example, 1).cast(DType::F32)))
                    });
                for backward in backwards() {
                    let losses = losses(private(&twin, x.clone()));
                    let grads = backward.run(losses, &twin).unwrap();
                    let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                    let found = flat_sum(sum);
                    let difference = largest_difference(&found, &expected);
                    assert!(
                        difference <= tolerance * norm(&expected),
                        "{dtype:?}: {difference}, norm {}",
                        norm(&expected)
                    );
                    let bound = shape[0] as f64 * clipping_norm;
                    assert!(norm(&found) <= bound * (1.0 + 1e-6));
                }
            }
        }
    }
}

#[test]
fn recurrent_layers_in_half_precision_equal_the_loop_over_examples() {
    check_half(
        [3, 4, 4],
        |device| RnnConfig::new(4, 5, true).with_clip(Some(0.7)).init(device),
        |layer: &Private<Rnn>, x| layer.forward(x, None).0,
        |layer: &Rnn, x| layer.forward(x, None).0,
    );
    check_half(
        [3, 4, 4],
        |device| BiLstmConfig::new(4, 5, true).init(device),
        |layer: &Private<BiLstm>, x| layer.forward(x, None).0,
        |layer: &BiLstm, x| layer.forward(x, None).0,
    );
    for reset_after in [true, false] {
        check_half(
            [3, 4, 4],
            |device| GruConfig::new(4, 5, true).with_reset_after(reset_after).init(device),
            |layer: &Private<Gru>, x| layer.forward(x, None),
            |layer: &Gru, x| layer.forward(x, None),
        );
    }
}

#[test]
fn attention_in_half_precision_equals_the_loop_over_examples() {
    check_half(
        [3, 4, 4],
        |device| MultiHeadAttentionConfig::new(4, 2).with_dropout(0.0).init(device),
        |layer: &Private<attention::MultiHeadAttention>, x| {
            layer.forward(MhaInput::self_attn(x)).context
        },
        |layer: &attention::MultiHeadAttention, x| {
            layer.forward(attention::MhaInput::self_attn(x)).context
        },
    );
    check_half(
        [3, 4, 4],
        |device| TransformerEncoderConfig::new(4, 6, 2, 2).with_dropout(0.0).init(device),
        |layer: &Private<transformer::TransformerEncoder>, x| {
            layer.forward(TransformerEncoderInput::new(x))
        },
        |layer: &transformer::TransformerEncoder, x| {
            layer.forward(transformer::TransformerEncoderInput::new(x))
        },
    );
}

/// Compares a layer whose twins are called by the same expression.
macro_rules! check_half_layer {
    ($layer:ty, $config:expr, $shape:expr) => {
        check_half(
            $shape,
            |device| $config.init(device),
            |layer: &Private<$layer>, x| layer.forward(x),
            |layer: &$layer, x| layer.forward(x),
        )
    };
}

#[test]
fn convolutions_in_half_precision_equal_the_loop_over_examples() {
    check_half_layer!(Conv1d, Conv1dConfig::new(4, 3, 2), [3, 4, 5]);
    check_half_layer!(Conv2d, Conv2dConfig::new([4, 2], [2, 3]).with_groups(2), [3, 4, 4, 5]);
    check_half_layer!(Conv3d, Conv3dConfig::new([2, 3], [2, 1, 2]), [3, 2, 3, 2, 3]);
    check_half_layer!(ConvTranspose1d, ConvTranspose1dConfig::new([4, 3], 2), [3, 4, 5]);
    check_half_layer!(ConvTranspose2d, ConvTranspose2dConfig::new([4, 2], [2, 3]), [3, 4, 3, 3]);
    check_half_layer!(
        ConvTranspose3d,
        ConvTranspose3dConfig::new([2, 3], [2, 1, 2]),
        [3, 2, 2, 2, 3]
    );
}

#[test]
fn norms_and_gated_layers_in_half_precision_equal_the_loop_over_examples() {
    check_half_layer!(RmsNorm, RmsNormConfig::new(4), [3, 4, 4]);
    check_half_layer!(GroupNorm, GroupNormConfig::new(2, 4), [3, 4, 4]);
    check_half_layer!(InstanceNorm, InstanceNormConfig::new(4), [3, 4, 4]);
    check_half_layer!(PRelu, PReluConfig::new().with_num_parameters(4), [3, 4, 4]);
    check_half_layer!(SwiGlu, SwiGluConfig::new(4, 4).with_bias(true), [3, 4, 4]);
    check_half_layer!(
        PositionWiseFeedForward,
        PositionWiseFeedForwardConfig::new(4, 6).with_dropout(0.0),
        [3, 4, 4]
    );
}
