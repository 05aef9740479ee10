//! The network: one private layer.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

/// A linear classifier.
#[derive(Module, Debug)]
pub struct Network {
    output: Private<Linear>,
}

impl Network {
    /// Initializes the network.
    pub fn new(device: &Device) -> Self {
        Self { output: LinearConfig::new(784, 10).init(device).private() }
    }

    /// Returns the scores of the digits, `[batch_size, 10]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.output.forward(images.flatten::<2>(1, 3))
    }
}
