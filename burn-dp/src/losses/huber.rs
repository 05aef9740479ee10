//! The Huber loss of each example.

use burn::config::Config;
use burn::module::Module;
use burn::nn::loss;
use burn::tensor::Tensor;

use super::ExampleReduction;
use super::reduction::assert_same_shape;

/// Configuration to create a [`HuberLoss`] with [`init`](Self::init).
#[derive(Config, Debug)]
pub struct HuberLossConfig {
    /// The difference from which on the loss is linear. Positive.
    pub delta: f32,
    /// How the values of one example become one.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The squared difference, halved, up to `delta`, and a line from there on, between predictions and
/// targets, one value for each example.
///
/// The mean over the batch is Burn's `HuberLoss` if all examples are of one shape and the reduction
/// is the mean.
#[derive(Module, Debug)]
pub struct HuberLoss {
    delta: f32,
    #[module(skip)]
    reduction: ExampleReduction,
}

impl HuberLossConfig {
    /// Initializes the loss.
    ///
    /// # Panics
    ///
    /// Unless `delta` is positive and finite.
    pub fn init(&self) -> HuberLoss {
        let delta = self.delta;
        assert!(delta > 0.0 && delta.is_finite(), "delta must be positive and finite, got {delta}");
        HuberLoss { delta, reduction: self.reduction }
    }
}

impl HuberLoss {
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
    /// If the shapes differ, also where they could be broadcast: `[n, 1]` against `[1, n]` would
    /// compare every example with every other.
    pub fn forward<const D: usize>(&self, predictions: Tensor<D>, targets: Tensor<D>) -> Tensor<1> {
        assert_same_shape(predictions.dims(), targets.dims());
        if predictions.dims()[0] == 0 {
            return self.reduction.reduce(predictions);
        }
        let values = loss::HuberLossConfig::new(self.delta)
            .init()
            .forward_no_reduction(predictions, targets);
        self.reduction.reduce(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::oracles::{to_vec, values};
    use crate::test_devices::cpu_devices;

    #[test]
    #[should_panic(expected = "delta must be positive and finite, got -1")]
    fn a_negative_delta_is_refused() {
        let _ = HuberLossConfig::new(-1.0).init();
    }

    #[test]
    fn the_gradient_of_an_extreme_difference_is_bounded_by_delta() {
        for device in cpu_devices() {
            let device = device.autodiff();
            let predictions = Tensor::<2>::from_floats([[1e30], [-1e30]], &device).require_grad();
            let targets = Tensor::<2>::zeros([2, 1], &device);
            let losses = HuberLossConfig::new(0.5).init().forward(predictions.clone(), targets);
            let gradient = predictions.grad(&losses.sum().backward()).map(|g| to_vec(&g));
            assert_eq!(gradient, Some(vec![0.5, -0.5]));
        }
    }

    #[test]
    #[should_panic(expected = "[4, 1], got [1, 4]")]
    fn shapes_that_would_be_broadcast_over_the_batch_are_refused() {
        let device = &cpu_devices()[0];
        let loss = HuberLossConfig::new(1.0).init();
        let _ = loss.forward(values([4, 1], device), values([1, 4], device));
    }
}
