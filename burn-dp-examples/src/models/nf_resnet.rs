use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Initializer, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private, StandardizedConv2d};

use super::Classifier;
use super::convolution::standardize;
use super::resnet::same_size_conv;

/// Factor that the branch of a block is multiplied by.
const ALPHA: f64 = 0.2;

/// `√(2 / (1 - 1/π))`: the ReLU of a standard normal variable times this has variance one.
const RELU_GAIN: f64 = 1.713_958_859_443_663_6;

/// Channels of a block over its width.
const EXPANSION: usize = 4;

/// The initial weights of a convolution.
const WEIGHTS: Initializer = Initializer::KaimingNormal { gain: 1.0, fan_out_only: false };

/// Configuration of the [normalizer-free residual network](NfResNet).
#[derive(Config, Debug)]
pub struct NfResNetConfig {
    /// Number of blocks of the four stages: `[3, 4, 6, 3]` for 50 layers, `[2, 2, 2, 2]` for 26.
    pub blocks: [usize; 4],
    /// Number of classes.
    pub classes: usize,
    /// Channels of an image.
    #[config(default = "3")]
    pub channels: usize,
    /// Width of the blocks of the first stage; each stage doubles it.
    #[config(default = "64")]
    pub width: usize,
    /// Starts with one 3 × 3 convolution at full resolution, for images of about 32 pixels, instead
    /// of a 7 × 7 convolution and a pooling that halve the sides twice.
    #[config(default = "false")]
    pub small_stem: bool,
}

/// A normalizer-free residual network, NF-ResNet.
///
/// No layer computes statistics of activations. Convolutions have standardized weights, so they
/// keep the variance of their inputs; the known growth of the variance from block to block is
/// divided out. The branch of each block starts with the factor zero, which is trained.
///
/// # References
///
/// A. Brock, S. De, S. L. Smith: Characterizing signal propagation to close the performance gap in
/// unnormalized ResNets, 2021, section 3 and appendix. In private training: S. De et al.: Unlocking
/// high-accuracy differentially private image classification through scale, 2022; T. Sander, P.
/// Stock, A. Sablayrolles: TAN without a burn, 2023.
#[derive(Module, Debug)]
pub struct NfResNet {
    /// The first convolution.
    pub conv: Private<StandardizedConv2d>,
    /// Halves the sides after the first convolution, unless the stem is small.
    pub pool: Option<Private<MaxPool2d>>,
    /// The four stages.
    pub stages: Vec<Vec<NfBlock>>,
    /// From the means of the channels to the classes.
    pub fc: Private<Linear>,
}

/// Three convolutions, with a shortcut.
#[derive(Module, Debug)]
pub struct NfBlock {
    /// The convolutions of 1, 3 and 1 pixels.
    pub convs: Vec<Private<StandardizedConv2d>>,
    /// The convolution of the shortcut, if the shape changes.
    pub shortcut: Option<Private<StandardizedConv2d>>,
    /// Factor of the branch, `[1]`.
    pub skip_gain: Private<Param<Tensor<1>>>,
    /// Standard deviation of the input at initialization.
    pub deviation: f64,
}

impl NfResNetConfig {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> NfResNet {
        let (kernel, stride) = if self.small_stem { (3, 1) } else { (7, 2) };
        let pool = MaxPool2dConfig::new([3, 3])
            .with_strides([2, 2])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
        let (mut input, mut variance) = (self.width, 1.0_f64);
        let mut stages = Vec::new();
        for (stage, &blocks) in self.blocks.iter().enumerate() {
            let output = (self.width << stage) * EXPANSION;
            let blocks = (0..blocks).map(|index| {
                let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                let input = std::mem::replace(&mut input, output);
                let block = block([input, output], stride, variance.sqrt(), device);
                // The shortcut of the first block of a stage is also divided.
                variance = if index == 0 { 1.0 } else { variance } + ALPHA * ALPHA;
                block
            });
            stages.push(blocks.collect());
        }
        // The first convolution has no bias.
        let first = same_size_conv([self.channels, self.width], kernel, stride, WEIGHTS, device);
        NfResNet {
            conv: StandardizedConv2d::new(first).private(),
            pool: (!self.small_stem).then(|| pool.init().private()),
            stages,
            fc: LinearConfig::new(input, self.classes).init(device).private(),
        }
    }
}

fn block([input, output]: [usize; 2], stride: usize, deviation: f64, device: &Device) -> NfBlock {
    let conv = |channels, kernel, stride| {
        standardize(same_size_conv(channels, kernel, stride, WEIGHTS, device)).private()
    };
    let width = output / EXPANSION;
    NfBlock {
        convs: vec![
            conv([input, width], 1, 1),
            conv([width, width], 3, stride),
            conv([width, output], 1, 1),
        ],
        shortcut: (stride != 1 || input != output).then(|| conv([input, output], 1, stride)),
        skip_gain: Param::from_tensor(Tensor::zeros([1], device)).private(),
        deviation,
    }
}

impl NfBlock {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let batch_size = input.dims()[0];
        let mut branch = input.clone() / self.deviation;
        let mut shortcut = input;
        for (index, conv) in self.convs.iter().enumerate() {
            branch = active(branch);
            if let (0, Some(conv)) = (index, &self.shortcut) {
                shortcut = conv.forward(branch.clone());
            }
            branch = conv.forward(branch);
        }
        let gain = self.skip_gain.forward::<2>(batch_size) * ALPHA;
        branch * gain.reshape([batch_size, 1, 1, 1]) + shortcut
    }
}

/// Returns the positive values, scaled to preserve the variance.
fn active(features: Tensor<4>) -> Tensor<4> {
    relu(features) * RELU_GAIN
}

impl Classifier for NfResNet {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut features = self.conv.forward(images);
        if let Some(pool) = &self.pool {
            features = pool.forward(features);
        }
        for block in self.stages.iter().flatten() {
            features = block.forward(features);
        }
        let pixels: Tensor<3> = active(features).flatten(2, 3);
        self.fc.forward(pixels.mean_dim(2).squeeze_dim::<2>(2))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;

    #[test]
    fn it_has_the_parameters_of_its_layers() {
        let model = NfResNetConfig::new([3, 4, 6, 3], 1_000).init(&Device::flex());
        // As ResNet-50 without normalization, a gain of each of the 26,560 outputs of
        // convolutions, a bias of each but the first 64, and a factor of each of 16 blocks.
        let convolutions_and_classes = 25_557_032 - 2 * 26_560;
        let parameters = convolutions_and_classes + 2 * 26_560 - 64 + 16;
        assert_eq!(model.num_params(), parameters);
    }

    #[test]
    fn they_score_images_of_any_size() {
        let device = Device::flex();
        for (blocks, small_stem, side) in
            [([2; 4], false, 64), ([2; 4], true, 28), ([3, 4, 6, 3], true, 32), ([1; 4], true, 5)]
        {
            let config = NfResNetConfig::new(blocks, 7).with_channels(1).with_width(4);
            let model = config.with_small_stem(small_stem).init(&device);
            let scores = model.forward(Tensor::zeros([2, 1, side, side], &device));
            assert_eq!(scores.dims(), [2, 7]);
        }
    }

    #[test]
    fn the_deviation_of_the_input_of_a_block_is_the_declared_one() {
        let device = Device::flex();
        device.seed(3);
        let config = NfResNetConfig::new([2, 3, 1, 1], 3).with_width(16).with_small_stem(true);
        let model = config.init(&device);
        let image = Tensor::random([16, 3, 16, 16], Distribution::Normal(0.0, 1.0), &device);
        let mut features = model.conv.forward(image);
        for (index, block) in model.stages.iter().flatten().enumerate() {
            let deviation = features.clone().var(1).mean().sqrt().into_scalar::<f64>();
            let ratio = deviation / block.deviation;
            assert!((0.7..1.4).contains(&ratio), "block {index}: {deviation}");
            // Branches that start with the factor zero would not count.
            let mut open = block.clone();
            open.skip_gain = Param::from_tensor(Tensor::ones([1], &device)).private();
            features = open.forward(features);
        }
        let declared = model.stages.iter().flatten().map(|block| block.deviation.powi(2));
        let expected = [1.0, 1.04, 1.08, 1.04, 1.08, 1.12, 1.04];
        for (declared, expected) in declared.zip(expected) {
            assert!((declared - expected).abs() < 1e-12, "{declared}");
        }
    }
}
