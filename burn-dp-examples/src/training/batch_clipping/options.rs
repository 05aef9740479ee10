//! Command-line options of batch clipping.

use burn::tensor::Device;
use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::models::{BnLeNet5, BnLeNet5Config};
use crate::training::options::{
    DataOptions, Given, PrivacyOptions, RecipeOptions, RunOptions, TrainingOptions, as_typed,
};

/// Help of `--noise-multiplier`, where the definition of the paper differs.
const NOISE_MULTIPLIER: &str = "Noise multiplier of a step. With one threshold it is the standard \
    deviation of the noise over the threshold, twice the sigma of the paper, whose noise is 2 C \
    sigma; with a threshold for each of L layers or groups it is the noise multiplier of each \
    threshold over √L [default: sigma = 0.5 of the paper]";

/// Train with batch clipping: mini-sets of fixed membership are drawn, and the gradient of each
/// mini-set is clipped as a whole.
///
/// Without further options: LeNet-5 with BatchNorm at the settings of Nguyen et al., 2023.
/// BatchNorm's statistics for inference come from public images: digits that are drawn apart, or
/// --public-data.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train", version)]
#[command(mut_arg("delta", |arg| arg.default_value("1e-5")))]
#[command(mut_arg("noise_multiplier", |arg| arg.help(NOISE_MULTIPLIER)))]
#[command(mut_arg("output", |arg| arg.default_value("out/batch-clipping")))]
pub struct BatchOptions {
    /// Data set and its size: digits, mnist or fashion-mnist.
    #[command(flatten)]
    pub data: DataOptions,
    /// Budget and noise.
    #[command(flatten)]
    pub privacy: PrivacyOptions,
    /// What is clipped.
    #[arg(long, value_enum, help_heading = "Clipping")]
    pub clipping: UnitClippingName,
    /// How updates are clipped.
    #[command(flatten)]
    pub policy: BatchPolicyOptions,
    /// Mini-sets and length.
    #[command(flatten)]
    pub training: MiniSetOptions,
    /// Backend and output.
    #[command(flatten)]
    pub run: RunOptions,
    /// Options by name.
    #[command(flatten)]
    pub recipe: RecipeOptions,
    #[arg(skip)]
    pub(super) given: Given,
}

/// How updates are clipped. A resumed run must share it.
#[derive(clap::Args, Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Clipping")]
pub struct BatchPolicyOptions {
    /// How the update of a mini-set is clipped.
    #[arg(long, value_enum, default_value_t = BatchPolicyName::Flat)]
    #[serde(serialize_with = "as_typed")]
    pub policy: BatchPolicyName,
    /// Clipping threshold of the update of a mini-set; zhang has none.
    #[arg(long, value_name = "C", default_value_t = 0.2, allow_hyphen_values = true)]
    pub max_grad_norm: f64,
    /// Factor of the thresholds after each pass over the data.
    #[arg(long, value_name = "D", default_value_t = 1.0, allow_hyphen_values = true)]
    pub threshold_decay: f64,
    /// Layerwise, zhang and multipliers: merge layers of similar norms on the public images into
    /// this many groups.
    #[arg(long, value_name = "N")]
    pub layer_groups: Option<usize>,
}

/// Mini-sets, length and learning rates. A resumed run must share them.
#[derive(clap::Args, Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Training")]
pub struct MiniSetOptions {
    /// Network to train.
    #[arg(long, value_enum, default_value_t = BatchModelName::BnLenet5)]
    #[serde(serialize_with = "as_typed")]
    pub model: BatchModelName,
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
    /// Steps of local SGD with momentum on the mini-set, whose total change is clipped (general
    /// batch clipping); without it, the gradient is clipped.
    #[arg(long, value_name = "N")]
    pub local_steps: Option<usize>,
    /// Learning rate of the local steps.
    #[arg(long, default_value_t = 0.05, allow_hyphen_values = true)]
    pub local_lr: f64,
    /// Passes over the data.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub epochs: usize,
    /// Learning rate of the first epoch.
    #[arg(long, default_value_t = 0.025, allow_hyphen_values = true)]
    pub lr: f64,
    /// Factor of the learning rate after each epoch.
    #[arg(long, default_value_t = 0.9, allow_hyphen_values = true)]
    pub lr_decay: f64,
}

impl TrainingOptions for BatchOptions {
    fn given_mut(&mut self) -> &mut Given {
        &mut self.given
    }
}

/// What is clipped.
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

/// A network that batch clipping trains.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchModelName {
    /// LeNet-5 with a BatchNorm after each convolution.
    #[value(name = "bn-lenet5")]
    BnLenet5,
    /// LeNet-5 without BatchNorm.
    #[value(name = "lenet5")]
    Lenet5,
}

impl BatchModelName {
    /// Initializes the network.
    pub fn init(self, device: &Device) -> BnLeNet5 {
        BnLeNet5Config::new().with_batch_norm(self == Self::BnLenet5).init(device)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        BatchOptions::command().debug_assert();
    }
}
