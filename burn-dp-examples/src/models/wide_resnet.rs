use burn::config::Config;
use burn::module::Module;
use burn::nn::{GroupNorm, GroupNormConfig, Initializer, Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::resnet::same_size_conv;
use super::{Classifier, Convolution};

/// Groups of a normalization, as in the papers that train the network privately.
const GROUPS: usize = 16;

/// Channels of the first convolution, and of the first stage over `k`; each stage doubles them.
const WIDTH: usize = 16;

/// Configuration of the [wide residual network](WideResNet).
#[derive(Config, Debug)]
pub struct WideResNetConfig {
    /// Number of layers `d = 6 n + 4`: three stages of `n` blocks of two convolutions.
    pub depth: usize,
    /// Factor `k` of the channels.
    pub factor: usize,
    /// Number of classes.
    pub classes: usize,
    /// Channels of an image.
    #[config(default = "3")]
    pub channels: usize,
    /// Whether the weights of convolutions are standardized; then the convolutions have a bias.
    #[config(default = "false")]
    pub standardized: bool,
    /// Whether ReLU follows a normalization, as in the original network, and not the reverse.
    #[config(default = "false")]
    pub norm_first: bool,
}

/// A wide residual network, WRN-`d`-`k`, with group normalization.
///
/// Each convolution of a block follows ReLU and a normalization in 16 groups, in this order or the
/// reverse. Convolutions have no bias, unless their weights are standardized.
///
/// # References
///
/// S. Zagoruyko, N. Komodakis: Wide residual networks, 2016, table 1. With group normalization: S.
/// De et al.: Unlocking high-accuracy differentially private image classification through scale,
/// 2022; T. Sander, P. Stock, A. Sablayrolles: TAN without a burn, 2023.
#[derive(Module, Debug)]
pub struct WideResNet {
    /// The first convolution.
    pub conv: Convolution,
    /// The three stages.
    pub stages: Vec<Vec<WideBlock>>,
    /// The last normalization.
    pub norm: Private<GroupNorm>,
    /// From the means of the channels to the classes.
    pub fc: Private<Linear>,
    /// Whether ReLU follows a normalization.
    #[module(skip)]
    pub norm_first: bool,
}

/// Two convolutions, with a shortcut.
#[derive(Module, Debug)]
pub struct WideBlock {
    /// The normalization before each convolution.
    pub norms: Vec<Private<GroupNorm>>,
    /// The convolutions.
    pub convs: Vec<Convolution>,
    /// The convolution of the shortcut, if the shape changes.
    pub shortcut: Option<Convolution>,
    /// Whether ReLU follows a normalization.
    #[module(skip)]
    pub norm_first: bool,
}

impl WideResNetConfig {
    /// Initializes the network.
    ///
    /// # Panics
    ///
    /// Panics if the depth is not `6 n + 4` with `n ≥ 1`, or if the factor is 0.
    pub fn init(&self, device: &Device) -> WideResNet {
        let (depth, factor) = (self.depth, self.factor);
        assert!(depth >= 10 && depth % 6 == 4, "the depth must be 10, 16, 22, …, got {depth}");
        assert!(factor > 0, "the factor of the channels must be at least 1, got {factor}");
        let mut input = WIDTH;
        let stages = (0..3).map(|stage| {
            let output = (WIDTH * factor) << stage;
            let blocks = (0..(depth - 4) / 6).map(|block| {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                self.block(std::mem::replace(&mut input, output), output, stride, device)
            });
            blocks.collect()
        });
        let stages = stages.collect();
        WideResNet {
            conv: self.conv([self.channels, WIDTH], 3, 1, device),
            stages,
            norm: norm(input, device),
            fc: LinearConfig::new(input, self.classes).init(device).private(),
            norm_first: self.norm_first,
        }
    }

    fn block(&self, input: usize, output: usize, stride: usize, device: &Device) -> WideBlock {
        let changes = stride != 1 || input != output;
        WideBlock {
            norms: vec![norm(input, device), norm(output, device)],
            convs: vec![
                self.conv([input, output], 3, stride, device),
                self.conv([output, output], 3, 1, device),
            ],
            shortcut: changes.then(|| self.conv([input, output], 1, stride, device)),
            norm_first: self.norm_first,
        }
    }

    fn conv(
        &self,
        channels: [usize; 2],
        kernel: usize,
        stride: usize,
        device: &Device,
    ) -> Convolution {
        let layer = same_size_conv(channels, kernel, stride, WEIGHTS, device);
        match self.standardized {
            false => Convolution::plain(layer),
            true => Convolution::standardized(layer),
        }
    }
}

impl WideBlock {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let [first_norm, second_norm] = &self.norms[..] else { return input };
        let [first, second] = &self.convs[..] else { return input };
        let active = activated(first_norm, self.norm_first, input.clone());
        let shortcut = match &self.shortcut {
            Some(conv) => conv.forward(active.clone()),
            None => input,
        };
        let hidden = activated(second_norm, self.norm_first, first.forward(active));
        shortcut + second.forward(hidden)
    }
}

/// Applies ReLU and a normalization.
fn activated(norm: &Private<GroupNorm>, norm_first: bool, input: Tensor<4>) -> Tensor<4> {
    if norm_first { relu(norm.forward(input)) } else { norm.forward(relu(input)) }
}

fn norm(channels: usize, device: &Device) -> Private<GroupNorm> {
    GroupNormConfig::new(GROUPS, channels).init(device).private()
}

/// The initial weights of a convolution.
const WEIGHTS: Initializer = Initializer::KaimingNormal { gain: 1.0, fan_out_only: false };

impl Classifier for WideResNet {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut features = self.conv.forward(images);
        for block in self.stages.iter().flatten() {
            features = block.forward(features);
        }
        let features = activated(&self.norm, self.norm_first, features);
        let features: Tensor<3> = features.flatten(2, 3);
        self.fc.forward(features.mean_dim(2).squeeze_dim::<2>(2))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;

    #[test]
    fn they_have_the_parameters_of_the_published_networks() {
        // The counts of WRN-16-4, WRN-40-4 and WRN-28-10 for CIFAR-10.
        let device = Device::flex();
        for (depth, factor, count) in [(16, 4, 2_748_890), (40, 4, 8_949_210), (28, 10, 36_479_194)]
        {
            let model = WideResNetConfig::new(depth, factor, 10).init(&device);
            assert_eq!(model.num_params(), count, "WRN-{depth}-{factor}");
        }
        // A gain and a bias of each output of WRN-16-4's 16 convolutions.
        let outputs = 16 + 5 * 64 + 5 * 128 + 5 * 256;
        let model = WideResNetConfig::new(16, 4, 10).with_standardized(true).init(&device);
        assert_eq!(model.num_params(), 2_748_890 + 2 * outputs);
    }

    #[test]
    fn they_score_images_of_any_size() {
        let device = Device::flex();
        for (depth, channels, side, standardized) in
            [(10, 1, 28, true), (16, 3, 32, false), (16, 3, 7, true)]
        {
            let config = WideResNetConfig::new(depth, 1, 7).with_channels(channels);
            let config = config.with_standardized(standardized);
            let scores =
                config.init(&device).forward(Tensor::zeros([2, channels, side, side], &device));
            assert_eq!(scores.dims(), [2, 7]);
        }
    }

    #[test]
    fn the_order_of_normalization_and_relu_is_a_setting() {
        let device = Device::flex();
        let norm = norm(16, &device);
        let input = Tensor::random([2, 16, 3, 3], Distribution::Normal(0.0, 1.0), &device);
        let smallest = |norm_first| {
            let output = activated(&norm, norm_first, input.clone());
            output.min().into_scalar::<f32>()
        };
        // ReLU last has no negative values; a normalization last has mean 0.
        assert!(smallest(true) == 0.0 && smallest(false) < 0.0);
        for norm_first in [false, true] {
            let config = WideResNetConfig::new(10, 1, 7).with_norm_first(norm_first);
            let model = config.init(&device);
            assert_eq!(model.forward(Tensor::zeros([2, 3, 8, 8], &device)).dims(), [2, 7]);
        }
    }

    #[test]
    #[should_panic(expected = "the depth must be 10, 16, 22, …, got 18")]
    fn a_depth_that_is_none_is_refused() {
        let _ = WideResNetConfig::new(18, 1, 7).init(&Device::flex());
    }
}
