//! The network: a frozen backbone and a private head.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

/// Layers whose parameters are public: load the parameters of a pre-trained model here.
#[derive(Module, Debug)]
pub struct Backbone {
    first: Linear,
    second: Linear,
}

/// The whole network.
#[derive(Module, Debug)]
pub struct Network {
    /// Frozen layers. They are not clipped and get no noise.
    pub backbone: Backbone,
    head: Private<Linear>,
}

impl Network {
    /// Initializes the network and freezes the backbone.
    pub fn new(device: &Device) -> Self {
        let backbone = Backbone {
            first: LinearConfig::new(784, 256).init(device),
            second: LinearConfig::new(256, 128).init(device),
        };
        Self {
            backbone: backbone.no_grad(),
            head: LinearConfig::new(128, 10).init(device).private(),
        }
    }

    /// Returns the scores of the digits, `[batch_size, 10]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let features = self.backbone.first.forward(images.flatten::<2>(1, 3)).tanh();
        self.head.forward(self.backbone.second.forward(features).tanh())
    }
}
