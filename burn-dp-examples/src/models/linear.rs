use burn::config::Config;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::Classifier;

/// Configuration of the [linear classifier](LinearClassifier).
#[derive(Config, Debug)]
pub struct LinearClassifierConfig {
    /// Number of values of an image, or of its features.
    pub values: usize,
    /// Number of classes.
    #[config(default = "10")]
    pub classes: usize,
}

/// A linear classifier: softmax regression.
#[derive(Module, Debug)]
pub struct LinearClassifier {
    /// From values to classes.
    pub linear: Private<Linear>,
}

impl LinearClassifierConfig {
    /// Initializes the classifier.
    pub fn init(&self, device: &Device) -> LinearClassifier {
        let linear = LinearConfig::new(self.values, self.classes).init(device);
        LinearClassifier { linear: linear.private() }
    }
}

impl Classifier for LinearClassifier {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.linear.forward(images.flatten(1, 3))
    }
}
