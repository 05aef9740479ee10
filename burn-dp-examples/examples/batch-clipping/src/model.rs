//! The network, with Burn's own layers and BatchNorm.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// A convolution with BatchNorm, and a linear layer.
///
/// BatchNorm mixes the examples of a batch. This is allowed here, because the gradient of a whole
/// mini-set is clipped.
#[derive(Module, Debug)]
pub struct Network {
    conv: Conv2d,
    norm: BatchNorm,
    output: Linear,
}

impl Network {
    /// Initializes the network.
    pub fn new(device: &Device) -> Self {
        Self {
            conv: Conv2dConfig::new([1, 8], [5, 5]).with_stride([4, 4]).init(device),
            norm: BatchNormConfig::new(8).init(device),
            output: LinearConfig::new(8 * 6 * 6, 10).init(device),
        }
    }

    /// Returns the scores of the digits, `[batch_size, 10]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.norm.forward(self.conv.forward(images)));
        self.output.forward(x.flatten::<2>(1, 3))
    }
}
