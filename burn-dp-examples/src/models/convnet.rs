use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AvgPool2d, AvgPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use super::Classifier;

/// Channels after each convolution.
const CHANNELS: [usize; 4] = [32, 64, 64, 128];

/// Configuration of the [small convolutional network](ConvNet).
#[derive(Config, Debug)]
pub struct ConvNetConfig {
    /// Channels of an image.
    pub channels: usize,
    /// Number of classes.
    pub classes: usize,
    /// Whether a BatchNorm follows each convolution.
    #[config(default = true)]
    pub batch_norm: bool,
}

/// Four convolutions with BatchNorm, built from Burn's own layers, for images of at least 8 pixels
/// per side. It is trained by batch clipping, where layers may mix the images of a mini-set.
///
/// # References
///
/// T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
/// stochastic gradient descent, 2023, table 1.
#[derive(Module, Debug)]
pub struct ConvNet {
    /// The convolutions, to 32, 64, 64 and 128 channels.
    pub convs: Vec<Conv2d>,
    /// The normalization after each convolution; empty without BatchNorm.
    pub norms: Vec<BatchNorm>,
    /// Halves both sides after each convolution except the last.
    pub pool: AvgPool2d,
    /// From the means of the channels to the classes.
    pub fc: Linear,
}

impl ConvNetConfig {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> ConvNet {
        let inputs = [self.channels, CHANNELS[0], CHANNELS[1], CHANNELS[2]];
        let conv = |(input, output)| {
            Conv2dConfig::new([input, output], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(device)
        };
        let norms = CHANNELS.map(|channels| BatchNormConfig::new(channels).init(device));
        ConvNet {
            convs: inputs.into_iter().zip(CHANNELS).map(conv).collect(),
            norms: if self.batch_norm { norms.to_vec() } else { Vec::new() },
            pool: AvgPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            fc: LinearConfig::new(CHANNELS[3], self.classes).init(device),
        }
    }
}

impl Classifier for ConvNet {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let (mut features, last) = (images, self.convs.len() - 1);
        for (index, conv) in self.convs.iter().enumerate() {
            features = relu(conv.forward(features));
            if let Some(norm) = self.norms.get(index) {
                features = norm.forward(features);
            }
            if index < last {
                features = self.pool.forward(features);
            }
        }
        let pixels: Tensor<3> = features.flatten(2, 3);
        self.fc.forward(pixels.mean_dim(2).squeeze_dim::<2>(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_parameters_of_the_table_and_of_its_norms() {
        let device = Device::flex();
        let config = ConvNetConfig::new(3, 10);
        let plain = (27 + 1) * 32 + (288 + 1) * 64 + (576 + 1) * 64 + (576 + 1) * 128 + 129 * 10;
        assert_eq!(config.clone().with_batch_norm(false).init(&device).num_params(), plain);
        // Scale, shift and the two running statistics of each channel.
        assert_eq!(config.init(&device).num_params(), plain + 4 * (32 + 64 + 64 + 128));
    }

    #[test]
    fn it_scores_gray_and_colored_images() {
        let device = Device::flex();
        for (channels, side) in [(1, 28), (3, 32), (3, 8)] {
            let model = ConvNetConfig::new(channels, 7).init(&device);
            let scores = model.forward(Tensor::zeros([2, channels, side, side], &device));
            assert_eq!(scores.dims(), [2, 7]);
        }
    }
}
