//! The mean squared error of each example.

use burn::config::Config;
use burn::module::Module;
use burn::nn::loss;
use burn::tensor::Tensor;

use super::ExampleReduction;

/// Configuration of [`MseLoss`].
#[derive(Config, Debug)]
pub struct MseLossConfig {
    /// The reduction of the values of one example to one value.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The squared difference between predictions and targets, one value for each example.
///
/// With the mean as the reduction, the mean over the batch is Burn's `MseLoss`.
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

impl Default for MseLoss {
    fn default() -> Self {
        Self::new()
    }
}

impl MseLoss {
    /// Creates the loss with the mean of the values of one example.
    pub fn new() -> Self {
        MseLossConfig::new().init()
    }

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
        let loss = loss::MseLoss::new();
        self.reduction.of_errors(predictions, targets, |x, y| loss.forward_no_reduction(x, y))
    }
}
