//! The masks of dropout.

use std::collections::HashSet;

use burn::module::Module;
use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Bool, Device, Tensor};

use crate::check_independence;
use crate::grads::oracle::{host, losses, numbered, numbers};
use crate::nn::{
    IntoPrivate, MhaInput, Private, PrivateLayer, TransformerEncoderInput, UnitScope, Units,
};
use crate::random::{InsecureSeed, LayerRandomness};
use crate::test_devices::{devices, training_devices};

/// Two layers of dropout.
#[derive(Module, Debug)]
struct Pair {
    first: Private<Dropout>,
    second: Private<Dropout>,
}

impl Pair {
    fn new(prob: f64) -> Self {
        let dropout = || DropoutConfig::new(prob).init().private();
        Self { first: dropout(), second: dropout() }
    }
}

fn randomness(step: u64) -> LayerRandomness {
    LayerRandomness::new(&InsecureSeed(5).into(), step)
}

fn rows(units: &[usize]) -> Units {
    Units::Rows { units: units.to_vec(), copies: 1 }
}

/// The masks of the first layer for these units: `[units, …]`.
fn masks<const D: usize>(
    model: &Pair,
    step: u64,
    units: Units,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    let _scope = UnitScope::enter(model, &randomness(step), units);
    model.first.forward(Tensor::ones(shape, device))
}

#[test]
fn masks_of_a_unit_are_the_same_in_every_batch() {
    for device in training_devices() {
        let model = Pair::new(0.3);
        let units = [4, 9, 2, 700];
        let all = masks(&model, 0, rows(&units), [4, 3, 5, 7], &device);
        for (row, &unit) in units.iter().enumerate() {
            let expected = host(all.clone().narrow(0, row, 1));
            let alone = masks(&model, 0, rows(&[unit]), [1, 3, 5, 7], &device);
            assert_eq!(host(alone), expected, "{device:?}");
            // In another row of a larger batch that is padded to a greater length.
            let larger = masks(&model, 0, rows(&[1, 0, 5, 8, unit]), [5, 3, 20, 33], &device);
            let larger = larger.slice([4..5, 0..3, 0..5, 0..7]);
            assert_eq!(host(larger), expected, "{device:?}");
        }
        // Without a length that may be padded.
        let wide = masks(&model, 0, rows(&[4, 9]), [2, 300], &device);
        let narrow = masks(&model, 0, rows(&[9]), [1, 41], &device);
        assert_eq!(host(narrow), host(wide.slice([1..2, 0..41])), "{device:?}");
    }
}

#[test]
fn units_rows_layers_uses_steps_and_heads_have_masks_of_their_own() {
    let device = Device::flex().autodiff();
    let model = Pair::new(0.5);
    let mut seen = HashSet::new();
    let mut count = 0;
    for step in [0, 1] {
        for units in [Units::Rows { units: vec![0, 1, 2], copies: 2 }, Units::One(3), Units::One(4)]
        {
            let _scope = UnitScope::enter(&model, &randomness(step), units);
            let ones = || Tensor::<4>::ones([6, 2, 8, 8], &device);
            for output in [
                model.first.forward(ones()),
                model.first.forward(ones()),
                model.second.forward(ones()),
            ] {
                // Twelve matrices of 64 coins.
                for mask in host(output).chunks(64) {
                    let bits: Vec<bool> = mask.iter().map(|&value| value > 0.0).collect();
                    seen.insert(bits);
                    count += 1;
                }
            }
        }
    }
    // Two of 216 matrices are equal with probability 2e-15.
    assert_eq!((seen.len(), count), (216, 216));
}

#[test]
fn masks_keep_the_configured_share_and_scale_it() {
    let device = Device::flex().autodiff();
    for prob in [0.1, 0.5, 0.9] {
        let model = Pair::new(prob);
        let values = host(masks(&model, 0, rows(&[0, 1]), [2, 100, 100], &device));
        let scale = f64::from((1.0 / (1.0 - prob)) as f32);
        assert!(values.iter().all(|&value| value == 0.0 || value == scale));
        let zeros = values.iter().filter(|&&value| value == 0.0).count() as f64 / 20_000.0;
        // Five standard deviations are 0.018 at most; the seed is fixed.
        assert!((zeros - prob).abs() < 0.018, "{prob} {zeros}");
    }
}

#[test]
fn dropout_is_the_identity_without_training() {
    for device in devices() {
        let x: Tensor<3> = numbers([2, 3, 4], 1, &device);
        let model = Pair::new(0.5);
        assert_eq!(host(model.first.forward(x.clone())), host(x.clone()));
        let x = x.autodiff();
        let frozen = model.freeze();
        assert_eq!(host(frozen.first.forward(x.clone())), host(x.clone()));
        assert_eq!(host(Pair::new(0.0).first.forward(x.clone())), host(x));
    }
}

#[derive(Module, Debug)]
struct Attention {
    attention: Private<MultiHeadAttention>,
    dropout: Private<Dropout>,
    fc: Private<Linear>,
}

#[derive(Module, Debug)]
struct Encoder {
    encoder: Private<TransformerEncoder>,
    fc: Private<Linear>,
}

/// Pads sequences of different length to the longest of a batch. Returns the points, and which of
/// them are padding.
fn padded(items: &[usize], device: &Device) -> (Tensor<3>, Tensor<2, Bool>) {
    let longest = items.iter().map(|item| item % 4 + 2).max().unwrap();
    let points = items.iter().map(|&item| {
        let length = item % 4 + 2;
        let values: Tensor<3> = numbers([1, length, 6], item as u64, device);
        let zeros = Tensor::zeros([1, longest - length, 6], device);
        if longest > length { Tensor::cat(vec![values, zeros], 1) } else { values }
    });
    let points = Tensor::cat(points.collect(), 0);
    let padding = items.iter().flat_map(|item| (0..longest).map(move |at| at >= item % 4 + 2));
    let padding: Vec<bool> = padding.collect();
    let padding = Tensor::<1, Bool>::from_data(padding.as_slice(), device);
    (points, padding.reshape([items.len(), longest]))
}

fn without_padding(output: Tensor<3>, padding: Tensor<2, Bool>) -> Tensor<1> {
    let rows = output.dims()[0];
    let squares = output.powi_scalar(2).sum_dim(2).squeeze_dim::<2>(2);
    squares.mask_fill(padding, 0.0).sum_dim(1).reshape([rows])
}

fn linear(device: &Device) -> Private<Linear> {
    LinearConfig::new(6, 3).init(device).private()
}

#[test]
fn attention_with_dropout_does_not_depend_on_the_padding_of_other_examples() {
    let device = Device::flex().autodiff();
    let items: Vec<usize> = (0..12).collect();

    let config = MultiHeadAttentionConfig::new(6, 2).with_dropout(0.3);
    let attention: MultiHeadAttention = numbered(config.init(&device), 4);
    let dropout = DropoutConfig::new(0.3).init().private();
    let model = Attention { attention: attention.private(), dropout, fc: linear(&device) };
    check_independence(&model, &items, |model, items| {
        let (points, padding) = padded(&items, &device);
        let input = MhaInput::self_attn(points).mask_pad(padding.clone());
        let context = model.dropout.forward(model.attention.forward(input).context);
        without_padding(model.fc.forward(context), padding)
    })
    .unwrap();

    let config = TransformerEncoderConfig::new(6, 8, 2, 2).with_dropout(0.3);
    let encoder: TransformerEncoder = numbered(config.init(&device), 4);
    let model = Encoder { encoder: encoder.private(), fc: linear(&device) };
    check_independence(&model, &items, |model, items| {
        let (points, padding) = padded(&items, &device);
        let input = TransformerEncoderInput::new(points).mask_pad(padding.clone());
        without_padding(model.fc.forward(model.encoder.forward(input)), padding)
    })
    .unwrap();
}

/// Checks a layer between two linear layers by value.
fn check_layer<L, const D: usize>(
    layer: L,
    shape: [usize; D],
    forward: impl Fn(&Private<L>, Tensor<D>) -> Tensor<1>,
) where
    L: PrivateLayer,
{
    let layer = numbered(layer.private(), 3);
    let device = Device::flex().autodiff();
    let items: Vec<u64> = (0..9).collect();
    check_independence(&layer, &items, |layer, items| {
        let rows = items.into_iter().map(|item| numbers(shape, item, &device)).collect();
        forward(layer, Tensor::cat(rows, 0))
    })
    .unwrap();
}

#[test]
fn every_kind_of_layer_passes_the_test_by_value() {
    use burn::nn::conv::{Conv2dConfig, ConvTranspose1dConfig};
    use burn::nn::{
        BiLstmConfig, EmbeddingConfig, GroupNormConfig, GruConfig, InstanceNormConfig,
        LayerNormConfig, LstmConfig, PReluConfig, RmsNormConfig, RnnConfig, SwiGluConfig,
    };
    let device = Device::flex().autodiff();
    let lstm = LstmConfig::new(4, 5, true).init(&device);
    check_layer(LinearConfig::new(6, 3).init(&device), [1, 4, 6], |m, x| losses(m.forward(x)));
    check_layer(LayerNormConfig::new(6).init(&device), [1, 4, 6], |m, x| losses(m.forward(x)));
    check_layer(RmsNormConfig::new(6).init(&device), [1, 4, 6], |m, x| losses(m.forward(x)));
    check_layer(GroupNormConfig::new(2, 4).init(&device), [1, 4, 6], |m, x| losses(m.forward(x)));
    check_layer(InstanceNormConfig::new(4).init(&device), [1, 4, 6], |m, x| losses(m.forward(x)));
    check_layer(PReluConfig::new().init(&device), [1, 4, 6], |m, x| losses(m.forward(x)));
    check_layer(SwiGluConfig::new(6, 3).init(&device), [1, 4, 6], |m, x| losses(m.forward(x)));
    check_layer(Conv2dConfig::new([2, 3], [3, 3]).init(&device), [1, 2, 6, 6], |m, x| {
        losses(m.forward(x))
    });
    check_layer(ConvTranspose1dConfig::new([2, 3], 3).init(&device), [1, 2, 6], |m, x| {
        losses(m.forward(x))
    });
    check_layer(RnnConfig::new(4, 5, true).init(&device), [1, 6, 4], |m, x| {
        losses(m.forward(x, None).0)
    });
    check_layer(GruConfig::new(4, 5, true).init(&device), [1, 6, 4], |m, x| {
        losses(m.forward(x, None))
    });
    check_layer(lstm, [1, 6, 4], |m, x| losses(m.forward(x, None).0));
    check_layer(BiLstmConfig::new(4, 5, true).init(&device), [1, 6, 4], |m, x| {
        losses(m.forward(x, None).0)
    });
    check_layer(EmbeddingConfig::new(7, 4).init(&device), [1, 6], |m, x| {
        losses(m.forward((x * 3.0 + 3.0).int()))
    });
}
