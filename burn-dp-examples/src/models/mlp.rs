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
    /// Widths of the hidden layers, of which there may be any number.
    #[config(default = "vec![128, 256]")]
    pub hidden: Vec<usize>,
    /// Number of values of an image.
    #[config(default = "784")]
    pub pixels: usize,
    /// Number of classes.
    #[config(default = "10")]
    pub classes: usize,
}

/// The multi-layer perceptron of Lee and Kifer (2021): by default two hidden layers, with sigmoids.
#[derive(Module, Debug)]
pub struct Mlp {
    /// From the pixels to the last hidden layer.
    pub hidden: Vec<Private<Linear>>,
    /// From the last hidden layer to the classes.
    pub output: Private<Linear>,
    /// After each hidden layer.
    pub sigmoid: Private<Activation>,
}

impl MlpConfig {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> Mlp {
        let layer = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device).private();
        let mut width = self.pixels;
        let hidden =
            self.hidden.iter().map(|&next| layer(std::mem::replace(&mut width, next), next));
        Mlp {
            hidden: hidden.collect(),
            output: layer(width, self.classes),
            sigmoid: ActivationConfig::Sigmoid.init(device).private(),
        }
    }
}

impl Classifier for Mlp {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let pixels: Tensor<2> = images.flatten(1, 3);
        let layers = self.hidden.iter();
        self.output.forward(layers.fold(pixels, |x, layer| self.sigmoid.forward(layer.forward(x))))
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
        for (hidden, expected) in
            [(vec![], (784 + 1) * 10), (vec![3; 8], (784 + 1) * 3 + 7 * (3 + 1) * 3 + (3 + 1) * 10)]
        {
            let model = MlpConfig::new().with_hidden(hidden).init(&Device::flex());
            assert_eq!(model.num_params(), expected);
        }
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
