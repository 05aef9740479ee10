//! The network: an ordinary Burn module whose layers are private.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

/// Two convolutions and a linear layer.
///
/// `Private<L>` computes what `L` computes. In the backward pass it also gives the norms of the
/// per-example gradients. Its record is the record of `L`.
#[derive(Module, Debug)]
pub struct Network {
    conv1: Private<Conv2d>,
    conv2: Private<Conv2d>,
    output: Private<Linear>,
}

impl Network {
    /// Initializes the network.
    pub fn new(device: &Device) -> Self {
        let conv = |channels| Conv2dConfig::new(channels, [5, 5]).with_stride([2, 2]);
        Self {
            conv1: conv([1, 8]).init(device).private(),
            conv2: conv([8, 16]).init(device).private(),
            output: LinearConfig::new(16 * 4 * 4, 10).init(device).private(),
        }
    }

    /// Returns the scores of the digits.
    ///
    /// # Shapes
    ///
    /// - images: `[batch_size, 1, 28, 28]`
    /// - output: `[batch_size, 10]`
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.conv1.forward(images));
        let x = relu(self.conv2.forward(x));
        self.output.forward(x.flatten::<2>(1, 3))
    }
}
