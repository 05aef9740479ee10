//! The mean squared error of each example.

use burn::config::Config;
use burn::module::Module;
use burn::nn::loss;
use burn::tensor::Tensor;

use super::ExampleReduction;
use super::reduction::assert_same_shape;

/// Configuration to create a [`MseLoss`] with [`init`](Self::init).
#[derive(Config, Debug)]
pub struct MseLossConfig {
    /// How the values of one example become one.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The squared difference between predictions and targets, one value for each example.
///
/// The mean over the batch is Burn's `MseLoss` if all examples are of one shape and the reduction is the
/// mean.
#[derive(Module, Debug)]
pub struct MseLoss {
    #[module(skip)]
    reduction: ExampleReduction,
}

impl MseLossConfig {
    /// Initializes the loss.
    pub fn init(&self) -> MseLoss {
        MseLoss { reduction: self.reduction }
    }
}

impl MseLoss {
    /// Computes the loss of each example.
    ///
    /// # Shapes
    ///
    /// - predictions: `[batch_size, …]`
    /// - targets: `[batch_size, …]`, the same
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// If the shapes differ, also where they could be broadcast: `[n, 1]` against `[1, n]` would compare
    /// every example with every other.
    pub fn forward<const D: usize>(&self, predictions: Tensor<D>, targets: Tensor<D>) -> Tensor<1> {
        assert_same_shape(predictions.dims(), targets.dims());
        if predictions.dims()[0] == 0 {
            return self.reduction.reduce(predictions);
        }
        let values = loss::MseLoss::new().forward_no_reduction(predictions, targets);
        self.reduction.reduce(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::oracles::{
        assert_close, check_confinement, check_gradients, devices, to_vec, values,
    };
    use burn::nn::loss::Reduction;

    fn config() -> MseLossConfig {
        MseLossConfig::new()
    }

    #[test]
    fn the_value_is_the_closed_form() {
        for device in devices() {
            let predictions = Tensor::<2>::from_floats([[1.0, -3.0], [0.5, 2.0]], &device);
            let targets = Tensor::<2>::from_floats([[0.0, 0.0], [0.5, 0.0]], &device);
            let mean = config().init().forward(predictions.clone(), targets.clone());
            assert_close(&to_vec(&mean), &[5.0, 2.0], 1e-6);
            let sum = config().with_reduction(ExampleReduction::Sum).init();
            assert_close(&to_vec(&sum.forward(predictions, targets)), &[10.0, 4.0], 1e-6);
        }
    }

    #[test]
    fn the_mean_over_the_batch_is_that_of_burn() {
        for device in devices() {
            let (predictions, targets) = (values([4, 3, 5], &device), values([5, 4, 3], &device));
            let targets = targets.reshape([4, 3, 5]) * 0.7;
            let ours = config().init().forward(predictions.clone(), targets.clone());
            assert_eq!(ours.dims(), [4]);
            let burn = loss::MseLoss::new().forward(predictions, targets, Reduction::Mean);
            assert_close(&to_vec(&ours.mean()), &to_vec(&burn), 1e-12);
        }
    }

    #[test]
    fn gradients_are_those_of_finite_differences_and_of_the_own_example_alone() {
        for device in devices() {
            for reduction in [ExampleReduction::Mean, ExampleReduction::Sum] {
                let loss = config().with_reduction(reduction).init();
                check_gradients(values([3, 4], &device), |x| {
                    let targets = values([3, 4], &x.device()) * 0.3 + 0.1;
                    loss.forward(x, targets)
                });
            }
        }
    }

    #[test]
    fn extreme_examples_leave_the_others_alone() {
        for device in devices() {
            for extreme in [1e30, f64::MAX, f64::INFINITY, f64::NAN] {
                check_confinement(values([3, 4], &device), extreme, |x| {
                    let targets = values([3, 4], &x.device()) * 0.3;
                    config().init().forward(x, targets)
                });
            }
        }
    }

    #[test]
    fn batches_of_no_and_of_one_example_have_as_many_losses() {
        for device in devices() {
            for batch_size in [0, 1] {
                let zeros = Tensor::<2>::zeros([batch_size, 3], &device);
                let losses = config().init().forward(zeros.clone(), zeros);
                assert_eq!(to_vec(&losses), vec![0.0; batch_size]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "[4, 1], got [1, 4]")]
    fn shapes_that_would_be_broadcast_over_the_batch_are_refused() {
        let device = &devices()[0];
        let _ = config().init().forward(values([4, 1], device), values([1, 4], device));
    }
}
