//! The tests of [`L1Loss`](super::L1Loss), [`MseLoss`](super::MseLoss) and
//! [`HuberLoss`](super::HuberLoss).

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::nn::loss::{self, Reduction};
use burn::tensor::{Device, Tensor};

use super::oracles::{assert_close, check_confinement, check_gradients, to_vec, values};
use super::{ExampleReduction, HuberLossConfig, L1LossConfig, MseLossConfig};
use crate::test_devices::cpu_devices;

type Forward = Box<dyn Fn(Tensor<3>, Tensor<3>) -> Tensor<1>>;

/// A loss and Burn's loss of the same name.
struct Case {
    ours: fn(ExampleReduction) -> Forward,
    burn_mean: fn(Tensor<3>, Tensor<3>) -> Tensor<1>,
    /// Sums of the losses for the differences `[1, -3]` and `[0, 2]`, computed by hand.
    sums: [f64; 2],
}

const CASES: [Case; 3] = [
    Case {
        ours: |reduction| {
            let loss = L1LossConfig::new().with_reduction(reduction).init();
            Box::new(move |x, y| loss.forward(x, y))
        },
        burn_mean: |x, y| loss::LpLossConfig::l1().forward(x, y, Reduction::Mean),
        sums: [4.0, 2.0],
    },
    Case {
        ours: |reduction| {
            let loss = MseLossConfig::new().with_reduction(reduction).init();
            Box::new(move |x, y| loss.forward(x, y))
        },
        burn_mean: |x, y| loss::MseLoss::new().forward(x, y, Reduction::Mean),
        sums: [10.0, 4.0],
    },
    Case {
        ours: |reduction| {
            let loss = HuberLossConfig::new(1.0).with_reduction(reduction).init();
            Box::new(move |x, y| loss.forward(x, y))
        },
        burn_mean: |x, y| loss::HuberLossConfig::new(1.0).init().forward(x, y, Reduction::Mean),
        sums: [3.0, 1.5],
    },
];

/// Calls `check` for every loss on every device.
fn for_each_case(check: impl Fn(&Device, &Case)) {
    cpu_devices().iter().for_each(|device| CASES.iter().for_each(|case| check(device, case)));
}

#[test]
fn loss_equals_the_closed_form() {
    for_each_case(|device, case| {
        let predictions = Tensor::from_floats([[[1.0], [-3.0]], [[0.5], [2.0]]], device);
        let targets = Tensor::from_floats([[[0.0], [0.0]], [[0.5], [0.0]]], device);
        let sum = (case.ours)(ExampleReduction::Sum)(predictions.clone(), targets.clone());
        assert_close(&to_vec(&sum), &case.sums, 1e-6);
        let mean = (case.ours)(ExampleReduction::Mean)(predictions, targets);
        assert_close(&to_vec(&mean), &case.sums.map(|sum| sum / 2.0), 1e-6);
    });
}

#[test]
fn mean_over_the_batch_equals_burn() {
    for_each_case(|device, case| {
        let (predictions, targets) = (values([4, 3, 5], device), values([5, 4, 3], device));
        let targets = targets.reshape([4, 3, 5]) * 0.7;
        let ours = (case.ours)(ExampleReduction::Mean)(predictions.clone(), targets.clone());
        assert_eq!(ours.dims(), [4]);
        let burn = (case.burn_mean)(predictions, targets);
        assert_close(&to_vec(&ours.mean()), &to_vec(&burn), 1e-12);
    });
}

#[test]
fn gradients_equal_finite_differences_of_their_own_example() {
    for_each_case(|device, case| {
        for reduction in [ExampleReduction::Mean, ExampleReduction::Sum] {
            let loss = (case.ours)(reduction);
            check_gradients(values([3, 4, 1], device), |x| {
                let targets = values([3, 4, 1], &x.device()) * 0.3 + 0.1;
                loss(x, targets)
            });
        }
    });
}

#[test]
fn extreme_examples_do_not_change_other_examples() {
    for_each_case(|device, case| {
        let loss = (case.ours)(ExampleReduction::Mean);
        for extreme in [1e30, f64::MAX, f64::INFINITY, f64::NAN] {
            check_confinement(values([3, 4, 1], device), extreme, |x| {
                let targets = values([3, 4, 1], &x.device()) * 0.3;
                loss(x, targets)
            });
        }
    });
}

#[test]
fn empty_and_single_batches_have_one_loss_for_each_example() {
    for_each_case(|device, case| {
        for batch_size in [0, 1] {
            let zeros = Tensor::zeros([batch_size, 3, 1], device);
            let losses = (case.ours)(ExampleReduction::Mean)(zeros.clone(), zeros);
            assert_eq!(to_vec(&losses), vec![0.0; batch_size]);
        }
    });
}

#[test]
fn shapes_that_broadcast_over_the_batch_are_refused() {
    for_each_case(|device, case| {
        let loss = (case.ours)(ExampleReduction::Mean);
        let call = || loss(values([4, 1, 1], device), values([1, 4, 1], device));
        let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the shapes differ");
        let message = panic.downcast_ref::<String>().expect("a message");
        assert!(message.contains("[4, 1, 1], got [1, 4, 1]"), "{message}");
    });
}
