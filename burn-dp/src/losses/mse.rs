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
/// The mean over the batch is Burn's `MseLoss` if all examples are of one shape and the reduction
/// is the mean.
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
    /// If the shapes differ, also where they could be broadcast: `[n, 1]` against `[1, n]` would
    /// compare every example with every other.
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
    use crate::losses::oracles::values;
    use crate::test_devices::cpu_devices;

    #[test]
    #[should_panic(expected = "[4, 1], got [1, 4]")]
    fn shapes_that_would_be_broadcast_over_the_batch_are_refused() {
        let device = &cpu_devices()[0];
        let _ = MseLossConfig::new().init().forward(values([4, 1], device), values([1, 4], device));
    }
}
