//! The absolute error of each example.

use burn::config::Config;
use burn::module::Module;
use burn::nn::loss;
use burn::tensor::Tensor;

use super::ExampleReduction;

/// Configuration of [`L1Loss`].
#[derive(Config, Debug)]
pub struct L1LossConfig {
    /// The reduction of the values of one example to one value.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The absolute difference between predictions and targets, one value for each example.
///
/// With the mean as the reduction, the mean over the batch is Burn's `LpLoss` with p = 1.
#[derive(Module, Debug)]
pub struct L1Loss {
    #[module(skip)]
    reduction: ExampleReduction,
}

impl L1LossConfig {
    /// Initializes the loss.
    pub fn init(&self) -> L1Loss {
        L1Loss { reduction: self.reduction }
    }
}

impl L1Loss {
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
        let loss = loss::LpLossConfig::l1();
        self.reduction.of_errors(predictions, targets, |x, y| loss.forward_no_reduction(x, y))
    }
}
