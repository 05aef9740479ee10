use burn::config::Config;
use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};
use clap::ValueEnum;

/// A normalization that does not mix examples.
#[derive(Config, Debug, ValueEnum, Copy, PartialEq, Eq)]
pub enum NormName {
    /// Group normalization: statistics of each example.
    Group,
    /// Batch normalization with frozen statistics, which come with the initial weights; its scale
    /// and shift are trained.
    FrozenBatch,
}

/// A normalization layer of a deep network.
///
/// Batch normalization in training mode has no per-example gradients: each example's loss depends
/// on the others. The paper freezes it at the values of a pre-trained model; group normalization is
/// the usual replacement.
///
/// # References
///
/// Y. Wu, K. He: Group normalization, 2018.
#[derive(Module, Debug)]
pub enum Norm {
    /// Group normalization.
    Group(Private<GroupNorm>),
    /// Batch normalization with frozen statistics.
    FrozenBatch(Private<BatchNorm>),
}

/// Number of groups, as in the paper that introduced them.
const GROUPS: usize = 32;

impl NormName {
    /// Initializes the layer for this number of channels.
    pub fn init(self, channels: usize, device: &Device) -> Norm {
        match self {
            Self::Group => {
                let groups = GROUPS.min(channels);
                Norm::Group(GroupNormConfig::new(groups, channels).init(device).private())
            }
            Self::FrozenBatch => {
                let mut norm = BatchNormConfig::new(channels).init(device);
                norm.training = burn::module::Param::from_bool(false);
                Norm::FrozenBatch(norm.private())
            }
        }
    }
}

impl Norm {
    /// Normalizes the channels.
    ///
    /// # Shapes
    ///
    /// - input and output: `[batch_size, channels, height, width]`
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Group(norm) => norm.forward(input),
            Self::FrozenBatch(norm) => norm.forward(input),
        }
    }
}
