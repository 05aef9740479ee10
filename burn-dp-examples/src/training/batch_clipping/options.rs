//! Command-line options of batch clipping.

use burn::tensor::{Device, Tensor};
use burn_dp::model::ParameterGroups;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::any_classifier;
use crate::data::{ImageBatcher, ImageShape};
use crate::models::{
    BnLeNet5, BnLeNet5Config, ConvNet, ConvNetConfig, NormName, ResNet, ResNetConfig, ResNetDepth,
};
use crate::training::TrainError;
use crate::training::options::{as_typed, headings};

/// Mini-sets and their updates. A resumed run must share them.
#[derive(Args, Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = headings::MINI_SETS)]
pub struct MiniSetOptions {
    /// How the update of a mini-set is clipped.
    #[arg(long, value_enum, default_value_t = BatchPolicyName::Flat)]
    #[serde(serialize_with = "as_typed")]
    pub policy: BatchPolicyName,
    /// Images in a mini-set; 1 is individual clipping.
    #[arg(long, value_name = "S", default_value_t = 64)]
    pub mini_set_size: usize,
    /// Mini-sets in a step.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub mini_sets: usize,
    /// Draw each mini-set independently: the guarantee is then for a whole mini-set added or
    /// removed. Without it, exactly K are drawn and the guarantee is for one image replaced.
    #[arg(long)]
    pub poisson: bool,
    /// Steps of a local optimizer on the mini-set, whose total change is clipped (general batch
    /// clipping); without it, the gradient is clipped.
    #[arg(long, value_name = "N")]
    pub local_steps: Option<usize>,
    /// Optimizer of the local steps.
    #[arg(long, value_enum, default_value_t = LocalOptimizerName::Momentum)]
    #[serde(serialize_with = "as_typed")]
    pub local_optimizer: LocalOptimizerName,
    /// Factor of the learning rate after each epoch.
    #[arg(long, default_value_t = 0.9, allow_hyphen_values = true)]
    pub lr_decay: f64,
    /// Fix weights that have converged, after each window of this many steps (sparsification).
    #[arg(long, value_name = "STEPS")]
    pub sparsify: Option<u64>,
    /// A weight has converged if its deviation within a window is at most this factor times the
    /// deviation that the noise causes in one step.
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0, allow_hyphen_values = true)]
    pub sparsify_factor: f64,
}

/// The clipped unit.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitClippingName {
    /// The update of a mini-set.
    Batch,
}

/// How an update is clipped.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchPolicyName {
    /// As a whole (full gradient clipping).
    Flat,
    /// Each layer to a threshold proportional to its norm on the public images, measured again
    /// after each epoch (enhanced adaptive layerwise clipping).
    Layerwise,
    /// Each layer to its norm on the public images, measured again after each epoch, without a
    /// master threshold (Zhang et al.).
    Zhang,
    /// As a whole, after each layer is scaled to the largest norm on the public images.
    Multipliers,
}

/// The optimizer of general batch clipping.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalOptimizerName {
    /// SGD with momentum 0.9.
    Momentum,
    /// Adam.
    Adam,
}

/// A network that batch clipping trains.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchModelName {
    /// LeNet-5 with a BatchNorm after each convolution.
    #[value(name = "bn-lenet5")]
    BnLenet5,
    /// LeNet-5 without BatchNorm.
    #[value(name = "lenet5")]
    Lenet5,
    /// Four convolutions, each with a BatchNorm.
    BnConvnet,
    /// Four convolutions.
    Convnet,
    /// ResNet-18 for small images, with BatchNorm.
    #[value(name = "bn-resnet18")]
    BnResnet18,
    /// ResNet-18 for small images, without normalization.
    #[value(name = "resnet18")]
    Resnet18,
}

impl BatchModelName {
    /// Returns whether the network has BatchNorm.
    pub fn has_batch_norm(self) -> bool {
        matches!(self, Self::BnLenet5 | Self::BnConvnet | Self::BnResnet18)
    }

    /// Returns whether the network reads images of this shape.
    pub fn reads(self, shape: ImageShape) -> bool {
        !matches!(self, Self::BnLenet5 | Self::Lenet5) || shape == ImageBatcher::MNIST.shape
    }

    /// Returns the number of layers with trained parameters.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the network has no groups.
    pub fn layers(self, channels: usize, classes: usize) -> Result<usize, TrainError> {
        let model = self.init(channels, classes, &Device::flex().autodiff());
        Ok(ParameterGroups::per_layer(&model)?.len())
    }

    /// Returns the same network with or without BatchNorm.
    pub fn other(self) -> Self {
        match self {
            Self::BnLenet5 => Self::Lenet5,
            Self::Lenet5 => Self::BnLenet5,
            Self::BnConvnet => Self::Convnet,
            Self::Convnet => Self::BnConvnet,
            Self::BnResnet18 => Self::Resnet18,
            Self::Resnet18 => Self::BnResnet18,
        }
    }

    /// Initializes the network for images of this many channels.
    pub fn init(self, channels: usize, classes: usize, device: &Device) -> BatchModel {
        let batch_norm = self.has_batch_norm();
        match self {
            Self::BnLenet5 | Self::Lenet5 => {
                let config = BnLeNet5Config::new().with_batch_norm(batch_norm);
                BatchModel::LeNet5(config.init(device))
            }
            Self::BnConvnet | Self::Convnet => {
                let config = ConvNetConfig::new(channels, classes).with_batch_norm(batch_norm);
                BatchModel::ConvNet(config.init(device))
            }
            Self::BnResnet18 | Self::Resnet18 => {
                let norm = if batch_norm { NormName::Batch } else { NormName::None };
                let config = ResNetConfig::new(ResNetDepth::D18, classes).with_channels(channels);
                BatchModel::ResNet(config.with_norm(norm).with_small_stem(true).init(device))
            }
        }
    }
}

any_classifier! {
    /// Any of the networks of the batch clipping paper.
    BatchModel(Tensor<4>) {
        /// LeNet-5, with or without BatchNorm.
        LeNet5(BnLeNet5),
        /// Convolutional network, with or without BatchNorm.
        ConvNet(ConvNet),
        /// Residual network of 18 layers, with or without BatchNorm.
        ResNet(ResNet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Classifier;

    #[test]
    fn every_network_scores_the_images_that_it_reads() {
        for &name in BatchModelName::value_variants() {
            for shape in [ImageBatcher::MNIST.shape, ImageBatcher::CIFAR10.shape] {
                if name.reads(shape) {
                    let (device, side) = (Device::flex(), shape.height);
                    let images = Tensor::zeros([2, shape.channels, side, side], &device);
                    let model = name.init(shape.channels, 10, &device);
                    assert_eq!(model.forward(images).dims(), [2, 10]);
                }
            }
            assert_eq!(name.other().other(), name);
            assert_ne!(name.other().has_batch_norm(), name.has_batch_norm());
        }
        assert!(!BatchModelName::Lenet5.reads(ImageBatcher::CIFAR10.shape));
    }
}
