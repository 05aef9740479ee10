//! The network, with Burn's own layers.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

/// A linear classifier.
///
/// Any layer can be used here: the change of the whole model is clipped, not the gradient of an
/// example.
#[derive(Module, Debug)]
pub struct Network {
    output: Linear,
}

impl Network {
    /// Initializes the network.
    pub fn new(device: &Device) -> Self {
        Self { output: LinearConfig::new(784, 10).init(device) }
    }

    /// Returns the scores of the digits, `[batch_size, 10]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.output.forward(images.flatten::<2>(1, 3))
    }
}
