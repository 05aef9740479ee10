use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{GroupNorm, GroupNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_dp_examples::models::Classifier;

use super::layer::{Forward, Layer};

/// Number of normalization groups, if there are at least as many channels.
const GROUPS: usize = 16;

/// ResNet-18 for small images: a stem of one 3 × 3 convolution at full resolution, group
/// normalization with 16 groups, and no normalization of the shortcuts.
#[derive(Module, Debug)]
pub(super) struct ResNet18<C: Module, N: Module, L: Module> {
    conv: C,
    norm: N,
    blocks: Vec<Residual<C, N>>,
    output: L,
}

/// Two convolutions and a shortcut.
#[derive(Module, Debug)]
struct Residual<C: Module, N: Module> {
    conv1: C,
    norm1: N,
    conv2: C,
    norm2: N,
    shortcut: Option<C>,
}

/// A convolution without bias that keeps the size, up to the stride.
fn conv<C: Layer<Conv2d>>(
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    device: &Device,
) -> C {
    let pad = kernel / 2;
    let config = Conv2dConfig::new(channels, [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
        .with_bias(false);
    C::of(config.init(device))
}

impl<C, N, L> ResNet18<C, N, L>
where
    C: Layer<Conv2d>,
    N: Layer<GroupNorm>,
    L: Layer<Linear>,
{
    /// Creates the network; the first stage has `width` channels, and each stage doubles them.
    pub(super) fn new(width: usize, classes: usize, device: &Device) -> Self {
        let norm = |channels: usize| {
            N::of(GroupNormConfig::new(GROUPS.min(channels), channels).init(device))
        };
        let mut input = width;
        let plan = [(1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (8, 2), (8, 1)];
        let block = |(factor, stride): (usize, usize)| {
            let output = factor * width;
            let input = std::mem::replace(&mut input, output);
            Residual {
                conv1: conv([input, output], 3, stride, device),
                norm1: norm(output),
                conv2: conv([output, output], 3, 1, device),
                norm2: norm(output),
                shortcut: (input != output).then(|| conv([input, output], 1, stride, device)),
            }
        };
        Self {
            conv: conv([3, width], 3, 1, device),
            norm: norm(width),
            blocks: plan.into_iter().map(block).collect(),
            output: L::of(LinearConfig::new(8 * width, classes).init(device)),
        }
    }
}

impl<C, N> Residual<C, N>
where
    C: Layer<Conv2d> + Forward<4>,
    N: Layer<GroupNorm> + Forward<4>,
{
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let hidden = relu(self.norm1.apply(self.conv1.apply(input.clone())));
        let output = self.norm2.apply(self.conv2.apply(hidden));
        let shortcut = match &self.shortcut {
            Some(conv) => conv.apply(input),
            None => input,
        };
        relu(output + shortcut)
    }
}

impl<C, N, L> Classifier for ResNet18<C, N, L>
where
    C: Layer<Conv2d> + Forward<4>,
    N: Layer<GroupNorm> + Forward<4>,
    L: Layer<Linear> + Forward<2>,
{
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut features = relu(self.norm.apply(self.conv.apply(images)));
        for block in &self.blocks {
            features = block.forward(features);
        }
        let pixels: Tensor<3> = features.flatten(2, 3);
        self.output.apply(pixels.mean_dim(2).squeeze_dim(2))
    }
}
