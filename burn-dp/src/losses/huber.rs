//! The Huber loss of each example.

use burn::config::Config;
use burn::module::Module;
use burn::nn::loss;
use burn::tensor::Tensor;

use super::ExampleReduction;

/// Configuration of [`HuberLoss`].
#[derive(Config, Debug)]
pub struct HuberLossConfig {
    /// The difference beyond which the loss is linear. Positive.
    pub delta: f32,
    /// The reduction of the values of one example to one value.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The Huber loss between predictions and targets, one value for each example.
///
/// The loss is half of the square for a difference of at most `delta`, and linear beyond that.
///
/// With the mean as the reduction, the mean over the batch is Burn's `HuberLoss`.
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
    /// Panics if `delta` is not positive and finite.
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
    /// - targets: the shape of the predictions
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// Panics if the shapes differ. Broadcasting `[n, 1]` against `[1, n]` would compare every
    /// example with every other.
    pub fn forward<const D: usize>(&self, predictions: Tensor<D>, targets: Tensor<D>) -> Tensor<1> {
        let loss = loss::HuberLossConfig::new(self.delta).init();
        self.reduction.of_errors(predictions, targets, |x, y| loss.forward_no_reduction(x, y))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::oracles::to_vec;
    use crate::test_devices::cpu_devices;

    #[test]
    #[should_panic(expected = "delta must be positive and finite, got -1")]
    fn negative_delta_is_refused() {
        let _ = HuberLossConfig::new(-1.0).init();
    }

    #[test]
    fn gradient_of_an_extreme_difference_is_bounded_by_delta() {
        for device in cpu_devices() {
            let device = device.autodiff();
            let predictions = Tensor::<2>::from_floats([[1e30], [-1e30]], &device).require_grad();
            let targets = Tensor::<2>::zeros([2, 1], &device);
            let losses = HuberLossConfig::new(0.5).init().forward(predictions.clone(), targets);
            let gradient = predictions.grad(&losses.sum().backward()).map(|g| to_vec(&g));
            assert_eq!(gradient, Some(vec![0.5, -0.5]));
        }
    }
}
