use burn::module::Module;
use burn::nn::{Linear, LinearConfig, LinearLayout};
use burn::tensor::{Device, Tensor};
use proptest::prelude::*;

use super::{check, numbers};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

#[derive(Module, Debug)]
struct PrivateMlp {
    first: Private<Linear>,
    second: Private<Linear>,
}

#[derive(Module, Debug)]
struct PlainMlp {
    first: Linear,
    second: Linear,
}

fn linear(d_input: usize, d_output: usize, bias: bool, seed: u64, device: &Device) -> Linear {
    let mut layer = LinearConfig::new(d_input, d_output).with_bias(bias).init(device);
    layer.weight = layer.weight.map(|_| numbers([d_input, d_output], seed, device).require_grad());
    layer.bias =
        layer.bias.map(|bias| bias.map(|_| numbers([d_output], seed + 1, device).require_grad()));
    layer
}

fn mlps(sizes: [usize; 3], bias: bool, seed: u64, device: &Device) -> (PrivateMlp, PlainMlp) {
    let first = linear(sizes[0], sizes[1], bias, seed, device);
    let second = linear(sizes[1], sizes[2], bias, seed + 2, device);
    let private = PrivateMlp { first: first.clone().private(), second: second.clone().private() };
    (private, PlainMlp { first, second })
}

/// One loss per example that weighs every output differently.
fn losses<const D: usize>(output: Tensor<D>) -> Tensor<1> {
    let batch_size = output.dims()[0];
    let rows: Tensor<2> = output.reshape([batch_size as isize, -1]);
    let [_, features] = rows.dims();
    let weights = numbers([1, features], 99, &rows.device());
    ((rows + weights).powi_scalar(2)).sum_dim(1).reshape([batch_size])
}

fn private_losses<const D: usize>(model: &PrivateMlp, x: Tensor<D>) -> Tensor<1> {
    losses(model.second.forward(model.first.forward(x).tanh()))
}

fn plain_losses<const D: usize>(model: &PlainMlp, x: Tensor<D>) -> Tensor<1> {
    losses(model.second.forward(model.first.forward(x).tanh()))
}

#[test]
fn a_linear_network_equals_the_loop_over_examples() {
    for device in training_devices() {
        for batch_size in [1, 2, 9] {
            for bias in [true, false] {
                let (private, plain) = mlps([7, 5, 3], bias, 3, &device);
                let x = numbers([batch_size, 7], 5, &device);
                check(&private, &plain, x, private_losses::<2>, plain_losses::<2>);
            }
        }
    }
}

#[test]
fn positions_are_summed_before_the_norm() {
    for device in training_devices() {
        for positions in [1, 2, 17] {
            let (private, plain) = mlps([4, 6, 3], true, 4, &device);
            let x = numbers([5, positions, 4], 6, &device);
            check(&private, &plain, x, private_losses::<3>, plain_losses::<3>);
        }
        let (private, plain) = mlps([4, 6, 3], true, 4, &device);
        let x = numbers([3, 2, 3, 4], 6, &device);
        check(&private, &plain, x, private_losses::<4>, plain_losses::<4>);
    }
}

#[test]
fn a_layer_that_is_used_twice_is_summed_before_its_norm() {
    for device in training_devices() {
        let layer = linear(4, 4, true, 8, &device);
        // The two uses see different numbers of positions.
        fn twice(first: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>) -> Tensor<1> {
            let y = first(x.clone()).tanh();
            let z = first(y.narrow(1, 0, 2) + x.narrow(1, 1, 2));
            losses(z)
        }
        let private = layer.clone().private();
        check(
            &private,
            &layer,
            numbers([4, 3, 4], 2, &device),
            |model: &Private<Linear>, x: Tensor<3>| twice(|x| model.forward(x), x),
            |model: &Linear, x: Tensor<3>| twice(|x| model.forward(x), x),
        );
    }
}

#[test]
fn frozen_parameters_stay_out_of_the_norm() {
    for device in training_devices() {
        for frozen in 0..4 {
            let (mut private, mut plain) = mlps([5, 4, 3], true, 12, &device);
            let freeze = |layer: Linear| match frozen {
                0 => layer.set_require_grad(false),
                1 => Linear { weight: layer.weight.set_require_grad(false), ..layer },
                2 => Linear { bias: layer.bias.map(|bias| bias.set_require_grad(false)), ..layer },
                _ => layer,
            };
            private.first = freeze(private.first.into_inner()).private();
            plain.first = freeze(plain.first);
            let x = numbers([4, 5], 1, &device);
            check(&private, &plain, x, private_losses::<2>, plain_losses::<2>);
        }
    }
}

#[test]
fn the_column_layout_changes_nothing() {
    for device in training_devices() {
        let layer = LinearConfig::new(6, 3).with_layout(LinearLayout::Col).init(&device);
        check(
            &layer.clone().private(),
            &layer,
            numbers([4, 6], 1, &device),
            |model: &Private<Linear>, x: Tensor<2>| losses(model.forward(x)),
            |model: &Linear, x: Tensor<2>| losses(model.forward(x)),
        );
    }
}

#[test]
fn a_batch_is_the_same_from_another_thread() {
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            std::thread::spawn(move || {
                for device in training_devices() {
                    let (private, plain) = mlps([7, 5, 3], true, seed, &device);
                    let x = numbers([6, 7], seed, &device);
                    check(&private, &plain, x, private_losses::<2>, plain_losses::<2>);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_networks_equal_the_loop_over_examples(
        batch_size in 1usize..8,
        positions in 1usize..6,
        sizes in [1usize..20, 1usize..20, 1usize..20],
        bias: bool,
        seed in 0u64..1000,
    ) {
        for device in training_devices() {
            let (private, plain) = mlps(sizes, bias, seed, &device);
            let x = numbers([batch_size, positions, sizes[0]], seed + 7, &device);
            check(&private, &plain, x, private_losses::<3>, plain_losses::<3>);
        }
    }
}
