use burn::module::{Module, Param};
use burn::nn::conv::{Conv1d, Conv1dConfig, Conv2dConfig, ConvTranspose1d, ConvTranspose1dConfig};
use burn::nn::transformer::{self, TransformerEncoderConfig};
use burn::nn::{
    BiRnn, BiRnnConfig, Embedding, EmbeddingConfig, Gru, GruConfig, LayerNorm, LayerNormConfig,
    LinearConfig, Lstm, LstmConfig, PRelu, PReluConfig,
};
use burn::tensor::{Device, Tensor};

use crate::clipping::{Clipping, FlatClipping};
use crate::grads::explain;
use crate::grads::oracle::{
    self, assert_close, backwards, check, clipped_by_loop, flat_sum, norm, numbers, set,
};
use crate::nn::{
    IntoPrivate, Private, PrivateLayer, StandardizedConv2d, TransformerEncoderInput, parameter,
};
use crate::test_devices::training_devices;

const COPIES: usize = 3;

#[derive(Module, Debug)]
struct Net<C, L> {
    conv: C,
    fc: L,
}

fn losses(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

/// Checks a convolution and a linear layer on units of several rows.
macro_rules! check_copies {
    ($conv:expr, $device:expr) => {{
        let (conv, device) = ($conv, $device);
        let fc = LinearConfig::new(2 * 16, 3).init(device);
        let private = Net { conv: conv.clone().private(), fc: fc.clone().private() };
        let plain = Net { conv, fc };
        let x = numbers([4 * COPIES, 1, 6, 6], 3, device);
        for clipping_norm in [1e-2, 1.0, 1e3] {
            let expected = clipped_by_loop(&plain, 4, clipping_norm, |model, unit| {
                let copies = x.clone().narrow(0, unit * COPIES, COPIES);
                let hidden = model.conv.forward(copies).tanh().flatten::<2>(1, 3);
                losses(model.fc.forward(hidden)).mean()
            });
            for backward in backwards() {
                let hidden = private.conv.forward(x.clone()).tanh().flatten::<2>(1, 3);
                let losses = losses(private.fc.forward(hidden));
                let grads = backward.with_group_size(COPIES).run(losses, &private).unwrap();
                let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                assert_eq!(sum.statistics().unwrap().reveal().examples, 4);
                assert_close(
                    device,
                    &flat_sum(sum),
                    &expected,
                    &format!("threshold {clipping_norm}"),
                );
            }
        }
    }};
}

#[test]
fn the_copies_of_a_unit_are_averaged_before_clipping() {
    for device in training_devices() {
        let conv = Conv2dConfig::new([1, 2], [3, 3]).init(&device);
        check_copies!(conv.clone(), &device);
        check_copies!(StandardizedConv2d::new(conv), &device);
    }
}

/// A model with one layer for every rule.
#[derive(Module, Debug)]
struct Rules<E, C, T, N, P> {
    embedding: E,
    conv: C,
    transposed: T,
    norm: N,
    relu: P,
    table: Param<Tensor<2>>,
}

type PrivateRules = Rules<
    Private<Embedding>,
    Private<Conv1d>,
    Private<ConvTranspose1d>,
    Private<LayerNorm>,
    Private<PRelu>,
>;
type PlainRules = Rules<Embedding, Conv1d, ConvTranspose1d, LayerNorm, PRelu>;

const WORDS: usize = 7;

fn rules(device: &Device) -> (PrivateRules, PlainRules) {
    let mut plain = Rules {
        embedding: EmbeddingConfig::new(WORDS, 4).init(device),
        conv: Conv1dConfig::new(4, 4, 2).init(device),
        transposed: ConvTranspose1dConfig::new([4, 4], 2).init(device),
        norm: LayerNormConfig::new(4).init(device),
        relu: PReluConfig::new().init(device),
        table: set(Param::from_tensor(Tensor::zeros([5, 4], device)), 1),
    };
    plain.embedding.weight = set(plain.embedding.weight, 2);
    plain.conv.weight = set(plain.conv.weight, 3);
    plain.transposed.weight = set(plain.transposed.weight, 4);
    let private = Rules {
        embedding: plain.embedding.clone().private(),
        conv: plain.conv.clone().private(),
        transposed: plain.transposed.clone().private(),
        norm: plain.norm.clone().private(),
        relu: plain.relu.clone().private(),
        table: plain.table.clone(),
    };
    (private, plain)
}

fn private_rules(model: &PrivateRules, x: Tensor<2>) -> Tensor<1> {
    let table: Tensor<3> = parameter(&model.table, x.dims()[0]);
    let embedded = model.embedding.forward(x.int()) + table;
    let channels = model.conv.forward(embedded.swap_dims(1, 2));
    // Two uses of one convolution.
    let channels = model.conv.forward(model.relu.forward(channels));
    let positions = model.transposed.forward(channels).swap_dims(1, 2);
    oracle::losses(model.embedding.attend(model.norm.forward(positions)))
}

fn plain_rules(model: &PlainRules, x: Tensor<2>) -> Tensor<1> {
    let embedded = model.embedding.forward(x.int()) + model.table.val().unsqueeze();
    let channels = model.conv.forward(embedded.swap_dims(1, 2));
    let channels = model.conv.forward(model.relu.forward(channels));
    let positions = model.transposed.forward(channels).swap_dims(1, 2);
    let weight = model.embedding.weight.val().transpose().unsqueeze();
    oracle::losses(model.norm.forward(positions).matmul(weight))
}

fn words(rows: usize, device: &Device) -> Tensor<2> {
    ((numbers([rows, 5], 11, device) + 1.0) * (WORDS as f64 / 2.0)).floor()
}

#[test]
fn the_copies_of_a_unit_are_averaged_in_every_rule() {
    for device in training_devices() {
        let (private, plain) = rules(&device);
        let x = words(3 * COPIES, &device);
        for clipping_norm in [1e-2, 1e4] {
            let expected = clipped_by_loop(&plain, 3, clipping_norm, |model, unit| {
                plain_rules(model, x.clone().narrow(0, unit * COPIES, COPIES)).mean()
            });
            for backward in backwards() {
                let losses = private_rules(&private, x.clone());
                let grads = backward.with_group_size(COPIES).run(losses, &private).unwrap();
                let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                assert_close(
                    &device,
                    &flat_sum(sum),
                    &expected,
                    &format!("threshold {clipping_norm}"),
                );
            }
        }
    }
}

#[test]
fn a_network_of_every_rule_equals_the_loop_over_examples() {
    for device in training_devices() {
        let (private, plain) = rules(&device);
        check(&private, &plain, words(4, &device), private_rules, plain_rules);
    }
}

#[test]
fn explained_gradients_have_the_size_of_the_batch() {
    let device = training_devices().remove(0);
    let (private, _) = rules(&device);
    let backward = crate::grads::PrivateBackward::new().deferred();
    let losses = private_rules(&private, words(4, &device));
    let explanation = explain(&backward, losses, &private).unwrap();
    for parameter in explanation.parameters() {
        let bytes = 4 * parameter.info.num_values() * size_of::<f32>();
        assert_eq!(parameter.gradient_bytes, bytes, "{}", parameter.info.path);
    }
}

#[test]
fn no_example_moves_the_sum_of_any_rule_by_more_than_the_threshold() {
    for device in training_devices() {
        for exponent in [-30, -10, 0, 6, 12, 18, 30] {
            let (mut private, _) = rules(&device);
            private.table =
                private.table.map(|table| (table * 10f64.powi(exponent)).detach().require_grad());
            for (clipping_norm, copies) in [(1e-3, 1), (10.0, 2)] {
                for backward in backwards() {
                    let losses = private_rules(&private, words(copies, &device));
                    let grads = backward.with_group_size(copies).run(losses, &private).unwrap();
                    let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                    let moved = norm(&flat_sum(sum));
                    assert!(
                        moved <= clipping_norm * (1.0 + 1.0 / f64::from(1 << 20)),
                        "1e{exponent} moved the sum by {moved}, threshold {clipping_norm}"
                    );
                }
            }
        }
    }
}

#[test]
fn exchanging_a_whole_group_moves_the_sum_by_twice_the_threshold_at_most() {
    let device = training_devices().remove(0);
    let fc = oracle::numbered(LinearConfig::new(5, 3).init(&device), 6).private();
    let clipping = FlatClipping::new(0.01).unwrap();
    let sum = |x: Tensor<2>| {
        let backward = crate::grads::PrivateBackward::new().with_group_size(COPIES);
        let grads = backward.run(losses(fc.forward(x)), &fc).unwrap();
        flat_sum(clipping.clip(grads).unwrap())
    };
    let x = numbers([2 * COPIES, 5], 1, &device);
    let other = numbers([COPIES, 5], 2, &device) * 1e4;
    let mut difference = sum(x.clone());
    let neighbor = sum(Tensor::cat(vec![x.narrow(0, 0, COPIES), other], 0));
    for (id, values) in &mut difference {
        values.iter_mut().zip(&neighbor[id]).for_each(|(a, b)| *a -= b);
    }
    assert!(norm(&difference) <= 0.02 * (1.0 + 1e-6));
}

#[test]
fn losses_that_are_not_whole_groups_are_refused() {
    let device = training_devices().remove(0);
    let fc = LinearConfig::new(5, 3).init(&device).private();
    let losses = losses(fc.forward(numbers([4, 5], 1, &device)));
    let backward = crate::grads::PrivateBackward::new().with_group_size(COPIES);
    let error = backward.run(losses, &fc).unwrap_err().to_string();
    assert!(error.contains("whole groups of 3"), "{error}");
}

/// Checks that the copies of a unit are averaged before clipping in every parameter of a layer.
fn check_copies<M: PrivateLayer>(
    layer: M,
    private: impl Fn(&Private<M>, Tensor<3>) -> Tensor<1>,
    plain: impl Fn(&M, Tensor<3>) -> Tensor<1>,
) {
    let layer = oracle::numbered(layer, 6);
    let twin = layer.clone().private();
    let device = layer.devices().remove(0);
    for units in [1, 3] {
        let x = numbers([units * COPIES, 4, 4], 13, &device);
        for clipping_norm in [1e-2, 1e4] {
            let expected = clipped_by_loop(&layer, units, clipping_norm, |layer, unit| {
                plain(layer, x.clone().narrow(0, unit * COPIES, COPIES)).mean()
            });
            for backward in backwards() {
                let backward = backward.with_group_size(COPIES);
                let grads = backward.run(private(&twin, x.clone()), &twin).unwrap();
                let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                assert_eq!(sum.statistics().unwrap().reveal().examples, units);
                assert_close(
                    &device,
                    &flat_sum(sum),
                    &expected,
                    &format!("threshold {clipping_norm}"),
                );
            }
        }
    }
}

#[test]
fn the_copies_of_a_unit_are_averaged_in_recurrent_layers() {
    use crate::grads::oracle::losses;
    for device in training_devices() {
        let rnn: BiRnn = BiRnnConfig::new(4, 3, true).init(&device);
        check_copies(
            rnn,
            |layer: &Private<BiRnn>, x| losses(layer.forward(x, None).0),
            |layer: &BiRnn, x| losses(layer.forward(x, None).0),
        );
        let lstm: Lstm = LstmConfig::new(4, 3, true).with_clip(Some(0.3)).init(&device);
        check_copies(
            lstm,
            |layer: &Private<Lstm>, x| losses(layer.forward(x, None).0),
            |layer: &Lstm, x| losses(layer.forward(x, None).0),
        );
        for reset_after in [true, false] {
            let gru: Gru = GruConfig::new(4, 3, true).with_reset_after(reset_after).init(&device);
            check_copies(
                gru,
                |layer: &Private<Gru>, x| losses(layer.forward(x, None)),
                |layer: &Gru, x| losses(layer.forward(x, None)),
            );
        }
    }
}

#[test]
fn the_copies_of_a_unit_are_averaged_in_attention_and_transformers() {
    use crate::grads::oracle::losses;
    for device in training_devices() {
        let encoder = TransformerEncoderConfig::new(4, 6, 2, 1).with_dropout(0.0).init(&device);
        check_copies(
            encoder,
            |layer: &Private<transformer::TransformerEncoder>, x| {
                losses(layer.forward(TransformerEncoderInput::new(x)))
            },
            |layer: &transformer::TransformerEncoder, x| {
                losses(layer.forward(transformer::TransformerEncoderInput::new(x)))
            },
        );
    }
}
