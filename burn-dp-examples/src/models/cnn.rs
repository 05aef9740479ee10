use burn::config::Config;
use burn::module::Module;
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::Classifier;

/// Configuration of the [convolutional network](Cnn).
#[derive(Config, Debug)]
pub struct CnnConfig {
    /// Number of kernels of the two convolutions.
    #[config(default = "[20, 50]")]
    pub kernels: [usize; 2],
    /// Width of the hidden layer.
    #[config(default = "128")]
    pub hidden: usize,
    /// Channels, height and width of an image.
    #[config(default = "[1, 28, 28]")]
    pub image: [usize; 3],
    /// Number of classes.
    #[config(default = "10")]
    pub classes: usize,
}

/// The paper's convolutional network: two convolutions of 5 × 5 without padding, each followed by a
/// max pooling of stride 2, and a hidden layer.
///
/// The paper does not name an activation. The bounded `tanh` keeps the norms of per-example
/// gradients even, so that clipping distorts less than with `relu` (N. Papernot et al.: Tempered
/// sigmoid activations for deep learning with differential privacy, 2021).
#[derive(Module, Debug)]
pub struct Cnn {
    /// From the image, `[batch_size, 1, 28, 28]`, to `[batch_size, 20, 24, 24]`.
    pub conv1: Private<Conv2d>,
    /// From `[batch_size, 20, 12, 12]` to `[batch_size, 50, 8, 8]`.
    pub conv2: Private<Conv2d>,
    /// From `[batch_size, 800]` to the hidden layer.
    pub fc1: Private<Linear>,
    /// From the hidden layer to the classes.
    pub fc2: Private<Linear>,
    /// Halves both sides of an image.
    pub pool: Private<MaxPool2d>,
    /// Between the layers.
    pub tanh: Private<Activation>,
}

impl CnnConfig {
    /// Initializes the network.
    ///
    /// # Panics
    ///
    /// Panics if an image has fewer than 16 pixels per side, because the convolutions would have no
    /// output.
    pub fn init(&self, device: &Device) -> Cnn {
        let [first, second] = self.kernels;
        let [channels, height, width] = self.image;
        assert!(height.min(width) >= 16, "at least 16 pixels on a side, got {height} x {width}");
        // For example 28 -> 24 -> 12 -> 8 -> 4 pixels on a side.
        let side = |pixels: usize| ((pixels - 4) / 2 - 4) / 2;
        let features = second * side(height) * side(width);
        Cnn {
            conv1: Conv2dConfig::new([channels, first], [5, 5]).init(device).private(),
            conv2: Conv2dConfig::new([first, second], [5, 5]).init(device).private(),
            fc1: LinearConfig::new(features, self.hidden).init(device).private(),
            fc2: LinearConfig::new(self.hidden, self.classes).init(device).private(),
            pool: MaxPool2dConfig::new([2, 2]).init().private(),
            tanh: ActivationConfig::Tanh.init(device).private(),
        }
    }
}

impl Classifier for Cnn {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        // Pooling and tanh commute, and in this order tanh costs a quarter as much.
        let features = self.tanh.forward(self.pool.forward(self.conv1.forward(images)));
        let features = self.tanh.forward(self.pool.forward(self.conv2.forward(features)));
        let features: Tensor<2> = features.flatten(1, 3);
        let hidden = self.tanh.forward(self.fc1.forward(features));
        self.fc2.forward(hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::SIDE;

    #[test]
    fn it_has_the_parameters_of_the_paper() {
        let model = CnnConfig::new().init(&Device::flex());
        let convolutions = (25 + 1) * 20 + (20 * 25 + 1) * 50;
        let expected = convolutions + (800 + 1) * 128 + (128 + 1) * 10;
        assert_eq!(model.num_params(), expected);
    }

    #[test]
    fn it_scores_ten_classes_for_one_image_and_for_several() {
        let device = Device::flex();
        let model = CnnConfig::new().init(&device);
        for batch_size in [1, 3] {
            let scores = model.forward(Tensor::zeros([batch_size, 1, SIDE, SIDE], &device));
            assert_eq!(scores.dims(), [batch_size, 10]);
        }
    }
}
