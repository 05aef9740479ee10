//! Residual networks.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::norm::Normalization;
use burn::nn::{BatchNormConfig, GroupNormConfig, Linear, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::module::{adaptive_avg_pool2d, max_pool2d};
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use crate::init::linear;
use crate::{ImageClassifier, Weights};

/// Width of the first stage.
const WIDTH: usize = 64;

/// Configuration of a residual network, in the shape and with the names of `torchvision`.
#[derive(Debug, Clone, PartialEq)]
pub struct TorchvisionResNetConfig {
    /// Blocks in the four stages.
    pub blocks: [usize; 4],
    /// Whether the blocks have three convolutions, the last of which has four times the width.
    pub bottleneck: bool,
    /// Width of the first stage; 64 in all public checkpoints.
    pub width: usize,
    /// The norms.
    pub norm: ResNetNorm,
}

/// The norms of a residual network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetNorm {
    /// BatchNorm with the statistics of the checkpoint, which never change. Scale and shift are
    /// trained.
    StoredStatistics,
    /// GroupNorm with this many groups, for training from scratch or from such a checkpoint. It has
    /// the names of BatchNorm, without statistics.
    Group(usize),
}

impl TorchvisionResNetConfig {
    /// Returns the configuration of ResNet-18.
    pub fn resnet18() -> Self {
        Self {
            blocks: [2, 2, 2, 2],
            bottleneck: false,
            width: WIDTH,
            norm: ResNetNorm::StoredStatistics,
        }
    }

    /// Returns the configuration of ResNet-34.
    pub fn resnet34() -> Self {
        Self { blocks: [3, 4, 6, 3], ..Self::resnet18() }
    }

    /// Returns the configuration of ResNet-50.
    pub fn resnet50() -> Self {
        Self { blocks: [3, 4, 6, 3], bottleneck: true, ..Self::resnet18() }
    }

    /// Returns the configuration of a checkpoint of `torchvision`, which has no file for it, or
    /// `None` if the parameters belong to another network.
    pub fn of(weights: &Weights) -> Option<Self> {
        let width = *weights.tensors().get("conv1.weight")?.shape().first()?;
        let has = |name: String| weights.tensors().contains_key(&name);
        let blocks = [1, 2, 3, 4].map(|stage| {
            let blocks = 0..;
            blocks.take_while(|block| has(format!("layer{stage}.{block}.conv1.weight"))).count()
        });
        let bottleneck = has("layer1.0.conv3.weight".into());
        let norm = ResNetNorm::StoredStatistics;
        (!blocks.contains(&0)).then_some(Self { blocks, bottleneck, width, norm })
    }
}

/// A residual network that classifies images.
///
/// # References
///
/// He et al., Deep residual learning for image recognition, 2016, section 3.3.
#[derive(Module, Debug)]
pub struct TorchvisionResNet {
    conv1: Private<Conv2d>,
    bn1: Private<Normalization>,
    layer1: Vec<ResNetBlock>,
    layer2: Vec<ResNetBlock>,
    layer3: Vec<ResNetBlock>,
    layer4: Vec<ResNetBlock>,
    fc: Private<Linear>,
}

#[derive(Module, Debug)]
struct ResNetBlock {
    conv1: Private<Conv2d>,
    bn1: Private<Normalization>,
    conv2: Private<Conv2d>,
    bn2: Private<Normalization>,
    conv3: Option<Private<Conv2d>>,
    bn3: Option<Private<Normalization>>,
    downsample: Option<Shortcut>,
}

/// The projection of a shortcut.
#[derive(Module, Debug)]
struct Shortcut {
    conv: Private<Conv2d>,
    norm: Private<Normalization>,
}

/// Creates the layers.
struct ResNetLayers<'a> {
    config: &'a TorchvisionResNetConfig,
    device: &'a Device,
}

impl ResNetLayers<'_> {
    fn conv(&self, channels: [usize; 2], kernel: usize, stride: usize) -> Private<Conv2d> {
        let side = kernel / 2;
        let config = Conv2dConfig::new(channels, [kernel; 2])
            .with_stride([stride; 2])
            .with_padding(PaddingConfig2d::Explicit(side, side, side, side))
            .with_bias(false);
        config.init(self.device).private()
    }

    fn norm(&self, channels: usize) -> Private<Normalization> {
        match self.config.norm {
            ResNetNorm::StoredStatistics => {
                let mut layer = BatchNormConfig::new(channels).init(self.device);
                layer.training = burn::module::Param::from_bool(false);
                Normalization::Batch(layer).private()
            }
            ResNetNorm::Group(groups) => {
                let layer = GroupNormConfig::new(groups, channels).init(self.device);
                Normalization::Group(layer).private()
            }
        }
    }

    /// Returns a block and the number of its output channels.
    fn block(&self, input: usize, width: usize, stride: usize) -> (ResNetBlock, usize) {
        let bottleneck = self.config.bottleneck;
        let output = if bottleneck { 4 * width } else { width };
        let (first, second) =
            if bottleneck { ([1, 1], [3, stride]) } else { ([3, stride], [3, 1]) };
        let shortcut =
            || Shortcut { conv: self.conv([input, output], 1, stride), norm: self.norm(output) };
        let block = ResNetBlock {
            conv1: self.conv([input, width], first[0], first[1]),
            bn1: self.norm(width),
            conv2: self.conv([width, width], second[0], second[1]),
            bn2: self.norm(width),
            conv3: bottleneck.then(|| self.conv([width, output], 1, 1)),
            bn3: bottleneck.then(|| self.norm(output)),
            downsample: (stride > 1 || input != output).then(shortcut),
        };
        (block, output)
    }

    fn stage(&self, index: usize, input: &mut usize) -> Vec<ResNetBlock> {
        let width = self.config.width << index;
        let block = |position| {
            let stride = if index > 0 && position == 0 { 2 } else { 1 };
            let (block, output) = self.block(*input, width, stride);
            *input = output;
            block
        };
        (0..self.config.blocks[index]).map(block).collect()
    }
}

impl TorchvisionResNet {
    /// Creates a model with random weights.
    ///
    /// # Panics
    ///
    /// Panics if the groups of GroupNorm do not divide the channels.
    pub fn new(config: &TorchvisionResNetConfig, classes: usize, device: &Device) -> Self {
        let layers = ResNetLayers { config, device };
        let mut channels = config.width;
        Self {
            conv1: layers.conv([3, channels], 7, 2),
            bn1: layers.norm(channels),
            layer1: layers.stage(0, &mut channels),
            layer2: layers.stage(1, &mut channels),
            layer3: layers.stage(2, &mut channels),
            layer4: layers.stage(3, &mut channels),
            fc: linear(channels, classes, device),
        }
    }
}

impl ImageClassifier for TorchvisionResNet {
    fn features(&self, images: Tensor<4>) -> Tensor<2> {
        let hidden = relu(self.bn1.forward(self.conv1.forward(images)));
        let options = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([1, 1]);
        let hidden = max_pool2d(hidden, options);
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
        let blocks = stages.into_iter().flatten();
        let hidden = blocks.fold(hidden, |hidden, block| block.forward(hidden));
        adaptive_avg_pool2d(hidden, [1, 1]).flatten::<2>(1, 3)
    }

    fn head(&self) -> &Private<Linear> {
        &self.fc
    }

    fn with_head(self, head: Private<Linear>) -> Self {
        Self { fc: head, ..self }
    }
}

impl ResNetBlock {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let shortcut = match &self.downsample {
            Some(Shortcut { conv, norm }) => norm.forward(conv.forward(input.clone())),
            None => input.clone(),
        };
        let hidden = relu(self.bn1.forward(self.conv1.forward(input)));
        let hidden = self.bn2.forward(self.conv2.forward(hidden));
        let hidden = match (&self.conv3, &self.bn3) {
            (Some(conv), Some(norm)) => norm.forward(conv.forward(relu(hidden))),
            _ => hidden,
        };
        relu(hidden + shortcut)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use burn::optim::SgdConfig;
    use burn::tensor::{Distribution, Int, TensorData};
    use burn_dp::check_independence;
    use burn_dp::losses::CrossEntropyLossConfig;
    use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
    use burn_dp::random::InsecureSeed;
    use burn_dp::sampling::Sampler;

    use super::*;
    use crate::weights::tensors;

    fn values(data: &TensorData) -> Vec<f32> {
        data.iter::<f32>().collect()
    }

    #[test]
    fn group_norm_takes_scale_and_shift_of_batch_norm_and_trains_privately() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/resnet-classify");
        let weights = Weights::read(&folder).unwrap();
        let stored = TorchvisionResNetConfig::of(&weights).unwrap();
        let config = TorchvisionResNetConfig { norm: ResNetNorm::Group(2), ..stored };
        let device = Device::flex().autodiff();
        let model = TorchvisionResNet::new(&config, 3, &device);
        let model = weights.load_into(model, None).unwrap();
        let before = tensors(&model);
        for (name, value) in &before {
            assert_eq!(values(value), values(&weights.tensors()[name]), "{name}");
        }
        // The parameters of the checkpoint, without its statistics.
        let is_parameter = |name: &&String| {
            !["running_mean", "running_var", "num_batches_tracked"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        let names = weights.tensors().keys().filter(is_parameter);
        assert!(before.keys().eq(names), "{:?}", before.keys());

        let images = Tensor::<4>::random([3, 3, 32, 32], Distribution::Default, &device);
        let losses = |model: &TorchvisionResNet, rows: &[usize]| {
            let rows = rows.iter().map(|row| *row as i64).collect::<Vec<_>>();
            let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &device);
            let scores = model.scores(images.clone().select(0, rows.clone()));
            CrossEntropyLossConfig::new().init().forward(scores, rows)
        };
        check_independence(&model, &[0, 1, 2], |model, rows| losses(model, &rows)).unwrap();
        let plan = PrivacyPlanConfig::new(3, 3.0)
            .with_sampling(SamplingScheme::FixedSize)
            .with_steps(1)
            .with_noise_multiplier(1.0)
            .with_max_grad_norm(1.0)
            .with_insecure_seed(InsecureSeed(0))
            .init()
            .unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
        let rows = draw.private_indices().to_vec();
        optim.backward(&model, &draw, |model: &TorchvisionResNet, _| losses(model, &rows)).unwrap();
        let after = tensors(&optim.step(0.1, model, draw).unwrap());
        for (name, value) in &after {
            let (after, before) = (values(value), values(&before[name]));
            assert!(after.iter().all(|value| value.is_finite()), "{name}");
            assert_ne!(after, before, "{name}");
        }
    }
}
