use burn::config::Config;
use burn::module::Module;
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::Classifier;

/// Configuration of the [multi-layer perceptron](Mlp).
#[derive(Config, Debug)]
pub struct MlpConfig {
    /// Widths of the hidden layers.
    #[config(default = "[128, 256]")]
    pub hidden: [usize; 2],
    /// Number of values of an image.
    #[config(default = "784")]
    pub pixels: usize,
    /// Number of classes.
    #[config(default = "10")]
    pub classes: usize,
}

/// The paper's multi-layer perceptron: two hidden layers with sigmoids.
#[derive(Module, Debug)]
pub struct Mlp {
    /// From pixels to the first hidden layer.
    pub fc1: Private<Linear>,
    /// From the first hidden layer to the second.
    pub fc2: Private<Linear>,
    /// From the second hidden layer to the classes.
    pub fc3: Private<Linear>,
    /// Between the layers.
    pub sigmoid: Private<Activation>,
}

impl MlpConfig {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> Mlp {
        let [first, second] = self.hidden;
        Mlp {
            fc1: LinearConfig::new(self.pixels, first).init(device).private(),
            fc2: LinearConfig::new(first, second).init(device).private(),
            fc3: LinearConfig::new(second, self.classes).init(device).private(),
            sigmoid: ActivationConfig::Sigmoid.init(device).private(),
        }
    }
}

impl Classifier for Mlp {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let pixels: Tensor<2> = images.flatten(1, 3);
        let hidden = self.sigmoid.forward(self.fc1.forward(pixels));
        let hidden = self.sigmoid.forward(self.fc2.forward(hidden));
        self.fc3.forward(hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::SIDE;

    #[test]
    fn it_has_the_parameters_of_the_paper() {
        let model = MlpConfig::new().init(&Device::flex());
        let expected = (784 + 1) * 128 + (128 + 1) * 256 + (256 + 1) * 10;
        assert_eq!(model.num_params(), expected);
    }

    #[test]
    fn it_scores_ten_classes_for_one_image_and_for_several() {
        let device = Device::flex();
        let model = MlpConfig::new().init(&device);
        for batch_size in [1, 3] {
            let scores = model.forward(Tensor::zeros([batch_size, 1, SIDE, SIDE], &device));
            assert_eq!(scores.dims(), [batch_size, 10]);
        }
    }
}
