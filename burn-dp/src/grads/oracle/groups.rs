use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;

use super::{assert_close, backwards, clipped_by_loop, flat_sum, norm, numbers};
use crate::clipping::{Clipping, FlatClipping};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

const COPIES: usize = 3;

#[derive(Module, Debug)]
struct Twin {
    conv: Private<Conv2d>,
    fc: Private<Linear>,
}

#[derive(Module, Debug)]
struct Plain {
    conv: Conv2d,
    fc: Linear,
}

fn losses(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

#[test]
fn the_copies_of_a_unit_are_averaged_before_clipping() {
    for device in training_devices() {
        let conv = Conv2dConfig::new([1, 2], [3, 3]).init(&device);
        let fc = LinearConfig::new(2 * 16, 3).init(&device);
        let private = Twin { conv: conv.clone().private(), fc: fc.clone().private() };
        let plain = Plain { conv, fc };
        let x = numbers([4 * COPIES, 1, 6, 6], 3, &device);
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
                assert_eq!(sum.statistics().reveal().examples, 4);
                assert_close(&flat_sum(sum), &expected, &format!("threshold {clipping_norm}"));
            }
        }
    }
}

#[test]
fn exchanging_a_whole_group_moves_the_sum_by_twice_the_threshold_at_most() {
    let device = training_devices().remove(0);
    let fc = LinearConfig::new(5, 3).init(&device).private();
    let clipping = FlatClipping::new(0.01).unwrap();
    let sum = |x: Tensor<2>| {
        let backward = super::PrivateBackward::new().with_group_size(COPIES);
        let grads = backward.run(losses(fc.forward(x)), &fc).unwrap();
        flat_sum(clipping.clip(grads).unwrap())
    };
    let x = numbers([2 * COPIES, 5], 1, &device);
    let other = numbers([COPIES, 5], 2, &device) * 1e4;
    let mut difference = sum(x.clone());
    let neighbour = sum(Tensor::cat(vec![x.narrow(0, 0, COPIES), other], 0));
    for (id, values) in &mut difference {
        values.iter_mut().zip(&neighbour[id]).for_each(|(a, b)| *a -= b);
    }
    assert!(norm(&difference) <= 0.02 * (1.0 + 1e-6));
}

#[test]
fn losses_that_are_not_whole_groups_are_refused() {
    let device = training_devices().remove(0);
    let fc = LinearConfig::new(5, 3).init(&device).private();
    let losses = losses(fc.forward(numbers([4, 5], 1, &device)));
    let backward = super::PrivateBackward::new().with_group_size(COPIES);
    let error = backward.run(losses, &fc).unwrap_err().to_string();
    assert!(error.contains("whole groups of 3"), "{error}");
}
