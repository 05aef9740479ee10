use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Initializer, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use super::{Classifier, Norm, NormName};

/// Number of layers of a [residual network](ResNet).
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum ResNetDepth {
    /// 8 blocks of two convolutions.
    D18,
    /// 16 blocks of two convolutions.
    D34,
    /// 16 blocks of three convolutions.
    D50,
    /// 33 blocks of three convolutions.
    D101,
}

impl ResNetDepth {
    /// Number of blocks of the four stages.
    fn blocks(self) -> [usize; 4] {
        match self {
            Self::D18 => [2, 2, 2, 2],
            Self::D34 | Self::D50 => [3, 4, 6, 3],
            Self::D101 => [3, 4, 23, 3],
        }
    }

    /// Output channels of a block over its width; 1 for blocks of two convolutions.
    fn expansion(self) -> usize {
        match self {
            Self::D18 | Self::D34 => 1,
            Self::D50 | Self::D101 => 4,
        }
    }
}

/// Configuration of the [residual network](ResNet).
#[derive(Config, Debug)]
pub struct ResNetConfig {
    /// Number of layers.
    pub depth: ResNetDepth,
    /// Number of classes.
    pub classes: usize,
    /// Channels of an image.
    #[config(default = "3")]
    pub channels: usize,
    /// Channels of the first stage; each stage doubles them.
    #[config(default = "64")]
    pub width: usize,
    /// How channels are normalized.
    #[config(default = "NormName::Group")]
    pub norm: NormName,
    /// Starts with one 3 × 3 convolution at full resolution, which is usual for images of 32
    /// pixels, instead of a 7 × 7 convolution and a pooling that halve the sides twice.
    #[config(default = "false")]
    pub small_stem: bool,
}

/// A residual network for images of any size, ResNet-18, 34, 50 or 101.
///
/// # References
///
/// K. He, X. Zhang, S. Ren, J. Sun: Deep residual learning for image recognition, 2016, table 1.
#[derive(Module, Debug)]
pub struct ResNet {
    /// The first convolution.
    pub conv1: Private<Conv2d>,
    /// The first normalization.
    pub norm1: Norm,
    /// Halves the sides after the first convolution, unless the stem is small.
    pub pool: Option<Private<MaxPool2d>>,
    /// The four stages.
    pub stages: Vec<Vec<ResidualBlock>>,
    /// From the means of the channels to the classes.
    pub fc: Private<Linear>,
}

/// Two or three convolutions, with a shortcut.
#[derive(Module, Debug)]
pub struct ResidualBlock {
    /// The convolutions.
    pub convs: Vec<Private<Conv2d>>,
    /// The normalization after each convolution.
    pub norms: Vec<Norm>,
    /// The convolution of the shortcut, if the shape changes.
    pub shortcut: Option<Private<Conv2d>>,
    /// The normalization of the shortcut.
    pub shortcut_norm: Option<Norm>,
}

impl ResNetConfig {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> ResNet {
        let (kernel, stride) = if self.small_stem { (3, 1) } else { (7, 2) };
        let pool = MaxPool2dConfig::new([3, 3])
            .with_strides([2, 2])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
        let mut input = self.width;
        let mut stages = Vec::new();
        for (stage, blocks) in self.depth.blocks().into_iter().enumerate() {
            let width = self.width << stage;
            let blocks = (0..blocks).map(|block| {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let output = width * self.depth.expansion();
                self.block(std::mem::replace(&mut input, output), width, stride, device)
            });
            stages.push(blocks.collect());
        }
        ResNet {
            conv1: conv(self.channels, self.width, kernel, stride, device),
            norm1: self.norm.init(self.width, device),
            pool: (!self.small_stem).then(|| pool.init().private()),
            stages,
            fc: LinearConfig::new(input, self.classes).init(device).private(),
        }
    }

    fn block(&self, input: usize, width: usize, stride: usize, device: &Device) -> ResidualBlock {
        let output = width * self.depth.expansion();
        // Kernel, channels and stride of each convolution.
        let plan = match self.depth.expansion() {
            1 => vec![(3, width, stride), (3, width, 1)],
            _ => vec![(1, width, 1), (3, width, stride), (1, output, 1)],
        };
        let (mut convs, mut norms, mut channels) = (Vec::new(), Vec::new(), input);
        for (kernel, out, stride) in plan {
            convs.push(conv(channels, out, kernel, stride, device));
            norms.push(self.norm.init(out, device));
            channels = out;
        }
        let changes = stride != 1 || input != output;
        ResidualBlock {
            convs,
            norms,
            shortcut: changes.then(|| conv(input, output, 1, stride, device)),
            shortcut_norm: changes.then(|| self.norm.init(output, device)),
        }
    }
}

/// The initial weights of a convolution.
const WEIGHTS: Initializer =
    Initializer::KaimingNormal { gain: std::f64::consts::SQRT_2, fan_out_only: true };

fn conv(
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    device: &Device,
) -> Private<Conv2d> {
    same_size_conv([input, output], kernel, stride, WEIGHTS, device).private()
}

/// Returns a convolution without bias that keeps the size, up to the stride.
pub(super) fn same_size_conv(
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    weights: Initializer,
    device: &Device,
) -> Conv2d {
    let pad = kernel / 2;
    Conv2dConfig::new(channels, [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
        .with_bias(false)
        .with_initializer(weights)
        .init(device)
}

impl ResidualBlock {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let last = self.convs.len() - 1;
        let mut output = input.clone();
        for (index, (conv, norm)) in self.convs.iter().zip(&self.norms).enumerate() {
            output = norm.forward(conv.forward(output));
            if index < last {
                output = relu(output);
            }
        }
        let shortcut = match (&self.shortcut, &self.shortcut_norm) {
            (Some(conv), Some(norm)) => norm.forward(conv.forward(input)),
            _ => input,
        };
        relu(output + shortcut)
    }
}

impl Classifier for ResNet {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut features = relu(self.norm1.forward(self.conv1.forward(images)));
        if let Some(pool) = &self.pool {
            features = pool.forward(features);
        }
        for block in self.stages.iter().flatten() {
            features = block.forward(features);
        }
        let pixels: Tensor<3> = features.flatten(2, 3);
        self.fc.forward(pixels.mean_dim(2).squeeze_dim::<2>(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTHS: [ResNetDepth; 4] =
        [ResNetDepth::D18, ResNetDepth::D34, ResNetDepth::D50, ResNetDepth::D101];

    #[test]
    fn they_have_the_parameters_of_the_published_networks() {
        // The counts of torchvision's models for ImageNet, and that of ResNet-18 for CIFAR-10.
        let device = Device::flex();
        let counts = [11_689_512, 21_797_672, 25_557_032, 44_549_160];
        for (depth, count) in DEPTHS.into_iter().zip(counts) {
            let model = ResNetConfig::new(depth, 1_000).init(&device);
            assert_eq!(model.num_params(), count, "{depth:?}");
        }
        let cifar = ResNetConfig::new(ResNetDepth::D18, 10).with_small_stem(true);
        assert_eq!(cifar.init(&device).num_params(), 11_173_962);
    }

    #[test]
    fn they_score_images_of_any_size() {
        let device = Device::flex();
        for (depth, small_stem) in [(DEPTHS[0], false), (DEPTHS[2], true), (DEPTHS[3], false)] {
            let config = ResNetConfig::new(depth, 7).with_channels(1).with_width(4);
            let model = config.with_small_stem(small_stem).init(&device);
            for (batch_size, side) in [(1, 28), (3, 32), (2, 64)] {
                let scores = model.forward(Tensor::zeros([batch_size, 1, side, side], &device));
                assert_eq!(scores.dims(), [batch_size, 7]);
            }
        }
    }
}
