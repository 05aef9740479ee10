//! The tests that the losses of regression share.

use burn::nn::loss::{self, Reduction};
use burn::tensor::Tensor;

use super::oracles::{assert_close, check_confinement, check_gradients, to_vec, values};
use super::{ExampleReduction, HuberLossConfig, L1LossConfig, MseLossConfig};
use crate::test_devices::cpu_devices;

type Forward = Box<dyn Fn(Tensor<3>, Tensor<3>) -> Tensor<1>>;

/// A loss beside Burn's of the same name.
struct Case {
    ours: fn(ExampleReduction) -> Forward,
    burns_mean: fn(Tensor<3>, Tensor<3>) -> Tensor<1>,
    /// Sums of the losses of the differences `[1, -3]` and `[0, 2]`, by hand.
    sums: [f64; 2],
}

const CASES: [Case; 3] = [
    Case {
        ours: |reduction| {
            let loss = L1LossConfig::new().with_reduction(reduction).init();
            Box::new(move |x, y| loss.forward(x, y))
        },
        burns_mean: |x, y| loss::LpLossConfig::l1().forward(x, y, Reduction::Mean),
        sums: [4.0, 2.0],
    },
    Case {
        ours: |reduction| {
            let loss = MseLossConfig::new().with_reduction(reduction).init();
            Box::new(move |x, y| loss.forward(x, y))
        },
        burns_mean: |x, y| loss::MseLoss::new().forward(x, y, Reduction::Mean),
        sums: [10.0, 4.0],
    },
    Case {
        ours: |reduction| {
            let loss = HuberLossConfig::new(1.0).with_reduction(reduction).init();
            Box::new(move |x, y| loss.forward(x, y))
        },
        burns_mean: |x, y| loss::HuberLossConfig::new(1.0).init().forward(x, y, Reduction::Mean),
        sums: [3.0, 1.5],
    },
];

#[test]
fn the_value_is_the_closed_form() {
    for (device, case) in cpu_devices().iter().flat_map(|d| CASES.iter().map(move |c| (d, c))) {
        let predictions = Tensor::from_floats([[[1.0], [-3.0]], [[0.5], [2.0]]], device);
        let targets = Tensor::from_floats([[[0.0], [0.0]], [[0.5], [0.0]]], device);
        let sum = (case.ours)(ExampleReduction::Sum)(predictions.clone(), targets.clone());
        assert_close(&to_vec(&sum), &case.sums, 1e-6);
        let mean = (case.ours)(ExampleReduction::Mean)(predictions, targets);
        assert_close(&to_vec(&mean), &case.sums.map(|sum| sum / 2.0), 1e-6);
    }
}

#[test]
fn the_mean_over_the_batch_is_that_of_burn() {
    for (device, case) in cpu_devices().iter().flat_map(|d| CASES.iter().map(move |c| (d, c))) {
        let (predictions, targets) = (values([4, 3, 5], device), values([5, 4, 3], device));
        let targets = targets.reshape([4, 3, 5]) * 0.7;
        let ours = (case.ours)(ExampleReduction::Mean)(predictions.clone(), targets.clone());
        assert_eq!(ours.dims(), [4]);
        let burns = (case.burns_mean)(predictions, targets);
        assert_close(&to_vec(&ours.mean()), &to_vec(&burns), 1e-12);
    }
}

#[test]
fn gradients_are_those_of_finite_differences_and_of_the_own_example_alone() {
    for (device, case) in cpu_devices().iter().flat_map(|d| CASES.iter().map(move |c| (d, c))) {
        for reduction in [ExampleReduction::Mean, ExampleReduction::Sum] {
            let loss = (case.ours)(reduction);
            check_gradients(values([3, 4, 1], device), |x| {
                let targets = values([3, 4, 1], &x.device()) * 0.3 + 0.1;
                loss(x, targets)
            });
        }
    }
}

#[test]
fn extreme_examples_leave_the_others_alone() {
    for (device, case) in cpu_devices().iter().flat_map(|d| CASES.iter().map(move |c| (d, c))) {
        let loss = (case.ours)(ExampleReduction::Mean);
        for extreme in [1e30, f64::MAX, f64::INFINITY, f64::NAN] {
            check_confinement(values([3, 4, 1], device), extreme, |x| {
                let targets = values([3, 4, 1], &x.device()) * 0.3;
                loss(x, targets)
            });
        }
    }
}

#[test]
fn batches_of_no_and_of_one_example_have_as_many_losses() {
    for (device, case) in cpu_devices().iter().flat_map(|d| CASES.iter().map(move |c| (d, c))) {
        for batch_size in [0, 1] {
            let zeros = Tensor::zeros([batch_size, 3, 1], device);
            let losses = (case.ours)(ExampleReduction::Mean)(zeros.clone(), zeros);
            assert_eq!(to_vec(&losses), vec![0.0; batch_size]);
        }
    }
}
