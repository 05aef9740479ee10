use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{Initializer, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::{Classifier, Norm, NormName};

/// Number of layers of a [VGG network](Vgg).
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum VggDepth {
    /// 8 convolutions: configuration A of the paper.
    D11,
    /// 13 convolutions: configuration D.
    D16,
    /// 16 convolutions: configuration E.
    D19,
}

impl VggDepth {
    /// Number of convolutions of the five stages.
    fn convolutions(self) -> [usize; 5] {
        match self {
            Self::D11 => [1, 1, 2, 2, 2],
            Self::D16 => [2, 2, 3, 3, 3],
            Self::D19 => [2, 2, 4, 4, 4],
        }
    }
}

/// Configuration of the [VGG network](Vgg).
#[derive(Config, Debug)]
pub struct VggConfig {
    /// Number of layers.
    pub depth: VggDepth,
    /// Channels, height and width of an image.
    pub image: [usize; 3],
    /// Number of classes.
    pub classes: usize,
    /// Channels of the first stage; the next three double them.
    #[config(default = "64")]
    pub width: usize,
    /// Width of the two hidden layers [default: 4096 as in the paper for images of 224 pixels and
    /// more, 512 for smaller ones].
    pub hidden: Option<usize>,
    /// Normalization after each convolution.
    #[config(default = "NormName::None")]
    pub norm: NormName,
}

/// A VGG network: VGG-11, 16 or 19, as in the paper without normalization, or with it.
///
/// A stage ends with a pooling that halves the sides, unless they are 1. More than 7 × 7 pixels are
/// averaged to that size before the hidden layers.
///
/// # References
///
/// K. Simonyan, A. Zisserman: Very deep convolutional networks for large-scale image recognition,
/// 2015, table 1.
#[derive(Module, Debug)]
pub struct Vgg {
    /// The convolutions of the five stages.
    pub stages: Vec<Vec<Private<Conv2d>>>,
    /// Their normalizations.
    pub norms: Vec<Vec<Norm>>,
    /// Halves the sides after a stage.
    pub pool: Private<MaxPool2d>,
    /// Averages features larger than 7 × 7.
    pub average: Option<AdaptiveAvgPool2d>,
    /// The hidden layers and the layer of the classes.
    pub layers: Vec<Private<Linear>>,
}

/// Maximum size that reaches the hidden layers.
const LARGEST: usize = 7;

/// Minimum side of an image for the hidden layers of the paper.
const IMAGENET_SIDE: usize = 224;

impl VggConfig {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> Vgg {
        let [mut channels, mut height, mut width] = self.image;
        let large = height.min(width) >= IMAGENET_SIDE;
        let hidden = self.hidden.unwrap_or(if large { 4096 } else { 512 });
        let (mut stages, mut norms) = (Vec::new(), Vec::new());
        for (stage, convolutions) in self.depth.convolutions().into_iter().enumerate() {
            let output = self.width << stage.min(3);
            let mut convs = Vec::new();
            for _ in 0..convolutions {
                convs.push(conv(channels, output, device));
                channels = output;
            }
            stages.push(convs);
            norms.push((0..convolutions).map(|_| self.norm.init(output, device)).collect());
            if height.min(width) >= 2 {
                (height, width) = (height / 2, width / 2);
            }
        }
        let average = (height.max(width) > LARGEST).then(|| {
            (height, width) = (height.min(LARGEST), width.min(LARGEST));
            AdaptiveAvgPool2dConfig::new([height, width]).init()
        });
        let widths = [channels * height * width, hidden, hidden, self.classes];
        let layer = |pair: &[usize]| LinearConfig::new(pair[0], pair[1]).init(device).private();
        let pool = MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init().private();
        Vgg { stages, norms, pool, average, layers: widths.windows(2).map(layer).collect() }
    }
}

/// A convolution that keeps the size.
fn conv(input: usize, output: usize, device: &Device) -> Private<Conv2d> {
    Conv2dConfig::new([input, output], [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_initializer(Initializer::KaimingNormal {
            gain: std::f64::consts::SQRT_2,
            fan_out_only: true,
        })
        .init(device)
        .private()
}

impl Classifier for Vgg {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut features = images;
        for (stage, norms) in self.stages.iter().zip(&self.norms) {
            for (conv, norm) in stage.iter().zip(norms) {
                features = relu(norm.forward(conv.forward(features)));
            }
            let [.., height, width] = features.dims();
            if height.min(width) >= 2 {
                features = self.pool.forward(features);
            }
        }
        if let Some(average) = &self.average {
            features = average.forward(features);
        }
        let mut scores: Tensor<2> = features.flatten(1, 3);
        for (index, layer) in self.layers.iter().enumerate() {
            scores = layer.forward(if index == 0 { scores } else { relu(scores) });
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp::model::TrainableParameters;

    use super::*;

    const DEPTHS: [VggDepth; 3] = [VggDepth::D11, VggDepth::D16, VggDepth::D19];

    #[test]
    fn they_have_the_parameters_of_the_published_networks() {
        // The counts of torchvision's models for ImageNet, without and with normalization.
        let counts = [132_863_336, 138_357_544, 143_667_240];
        let normalized = [132_868_840, 138_365_992, 143_678_248];
        for (norm, counts) in [(NormName::None, counts), (NormName::FrozenBatch, normalized)] {
            for (depth, count) in DEPTHS.into_iter().zip(counts) {
                let config = VggConfig::new(depth, [3, 224, 224], 1_000).with_norm(norm);
                // Without the running statistics.
                let model = config.init(&Device::flex().autodiff());
                let found = TrainableParameters::of(&model).unwrap().num_values();
                assert_eq!(found, count, "{depth:?} {norm:?}");
            }
        }
    }

    #[test]
    fn they_score_images_of_any_size() {
        let device = Device::flex();
        for (depth, side) in [(DEPTHS[0], 28), (DEPTHS[1], 32), (DEPTHS[2], 64), (DEPTHS[0], 272)] {
            let config = VggConfig::new(depth, [1, side, side], 7).with_width(2);
            let config = config.with_norm(NormName::FrozenBatch);
            let model = config.with_hidden(Some(5)).init(&device);
            let scores = model.forward(Tensor::zeros([2, 1, side, side], &device));
            assert_eq!(scores.dims(), [2, 7]);
        }
    }
}
