use burn::config::Config;
use burn::module::Module;
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AvgPool2d, AvgPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::Classifier;
use crate::data::CLASSES;

/// Configuration of [LeNet-5 with batch normalization](BnLeNet5).
#[derive(Config, Debug)]
pub struct BnLeNet5Config {
    /// Whether a BatchNorm follows each convolution.
    #[config(default = true)]
    pub batch_norm: bool,
}

/// LeNet-5 with a BatchNorm after each convolution, built from Burn's own layers except for `tanh`,
/// which has a faster kernel. It is trained by batch clipping, where layers may mix the images of a
/// mini-set.
///
/// The paper crops its images from 36 × 36 pixels to 32 × 32; here 28 × 28 are padded by 2, which
/// is the crop from the middle. The paper's other crops are shifts by up to 2
/// pixels ([`RandomCrop`](burn_dp::nn::RandomCrop)).
///
/// # References
///
/// T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
/// stochastic gradient descent, 2023, table 2.
#[derive(Module, Debug)]
pub struct BnLeNet5 {
    /// From the image, `[batch_size, 1, 28, 28]`, to `[batch_size, 6, 28, 28]`.
    pub conv1: Conv2d,
    /// Normalizes 6 channels.
    pub norm1: Option<BatchNorm>,
    /// From `[batch_size, 6, 14, 14]` to `[batch_size, 16, 10, 10]`.
    pub conv2: Conv2d,
    /// Normalizes 16 channels.
    pub norm2: Option<BatchNorm>,
    /// From `[batch_size, 16, 5, 5]` to `[batch_size, 120, 1, 1]`.
    pub conv3: Conv2d,
    /// Normalizes 120 channels.
    pub norm3: Option<BatchNorm>,
    /// From 120 features to 84.
    pub fc1: Linear,
    /// From 84 features to the classes.
    pub fc2: Linear,
    /// Halves both sides of an image.
    pub pool: AvgPool2d,
    /// Between the layers.
    pub tanh: Private<Activation>,
}

impl BnLeNet5Config {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> BnLeNet5 {
        let conv = |from: usize, to: usize| Conv2dConfig::new([from, to], [5, 5]);
        let norm = |channels| self.batch_norm.then(|| BatchNormConfig::new(channels).init(device));
        BnLeNet5 {
            conv1: conv(1, 6).with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2)).init(device),
            norm1: norm(6),
            conv2: conv(6, 16).init(device),
            norm2: norm(16),
            conv3: conv(16, 120).init(device),
            norm3: norm(120),
            fc1: LinearConfig::new(120, 84).init(device),
            fc2: LinearConfig::new(84, CLASSES).init(device),
            pool: AvgPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            tanh: ActivationConfig::Tanh.init(device).private(),
        }
    }
}

fn normalized(norm: &Option<BatchNorm>, features: Tensor<4>) -> Tensor<4> {
    match norm {
        Some(norm) => norm.forward(features),
        None => features,
    }
}

impl Classifier for BnLeNet5 {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let features = normalized(&self.norm1, self.tanh.forward(self.conv1.forward(images)));
        let features = self.pool.forward(features);
        let features = normalized(&self.norm2, self.tanh.forward(self.conv2.forward(features)));
        let features = self.pool.forward(features);
        let features = normalized(&self.norm3, self.tanh.forward(self.conv3.forward(features)));
        let features: Tensor<2> = features.flatten(1, 3);
        self.fc2.forward(self.tanh.forward(self.fc1.forward(features)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::SIDE;

    #[test]
    fn it_has_the_parameters_of_lenet_5_and_of_its_norms() {
        let model = BnLeNet5Config::new();
        let device = Device::flex();
        let plain =
            (25 + 1) * 6 + (6 * 25 + 1) * 16 + (16 * 25 + 1) * 120 + (120 + 1) * 84 + 85 * 10;
        assert_eq!(plain, 61_706);
        let without = model.clone().with_batch_norm(false).init(&device);
        assert_eq!(without.num_params(), plain);
        // Scale, shift and the two running statistics of each channel.
        assert_eq!(model.init(&device).num_params(), plain + 4 * (6 + 16 + 120));
    }

    #[test]
    fn it_scores_ten_classes_for_one_image_and_for_several() {
        let device = Device::flex();
        let model = BnLeNet5Config::new().init(&device);
        for batch_size in [1, 3] {
            let scores = model.forward(Tensor::zeros([batch_size, 1, SIDE, SIDE], &device));
            assert_eq!(scores.dims(), [batch_size, 10]);
        }
    }
}
