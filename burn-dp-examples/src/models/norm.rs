use burn::config::Config;
use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};
use clap::ValueEnum;
use clap::builder::PossibleValue;

/// How the channels of a deep network are normalized.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum NormName {
    /// Group normalization: statistics of each example.
    Group,
    /// Batch normalization with frozen statistics, which come with the initial weights; its scale
    /// and shift are trained.
    FrozenBatch,
    /// Batch normalization with the statistics of the mini-set, only for batch clipping.
    Batch,
    /// No normalization.
    None,
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
    /// Batch normalization, which mixes examples.
    Batch(BatchNorm),
    /// No normalization of this many channels.
    None(usize),
}

/// Number of groups, as in the paper that introduced them.
const GROUPS: usize = 32;

/// The names that an option accepts: networks with private layers have no others.
impl ValueEnum for NormName {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Group, Self::FrozenBatch]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Group => Some(
                PossibleValue::new("group").help("Group normalization: statistics of each example"),
            ),
            Self::FrozenBatch => Some(PossibleValue::new("frozen-batch").help(
                "Batch normalization with frozen statistics, which come with the initial weights; \
                 its scale and shift are trained",
            )),
            Self::Batch | Self::None => None,
        }
    }
}

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
            Self::Batch => Norm::Batch(BatchNormConfig::new(channels).init(device)),
            Self::None => Norm::None(channels),
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
            Self::Batch(norm) => norm.forward(input),
            Self::None(_) => input,
        }
    }
}
