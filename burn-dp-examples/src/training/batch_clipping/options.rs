//! The options of batch clipping, as they are typed.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::{Args, Parser, ValueEnum};

use crate::models::{BnLeNet5, BnLeNet5Config};
use crate::training::{BackendName, DatasetName};

/// Train with batch clipping: mini-sets of fixed membership are drawn, and each one's gradient is
/// clipped as a whole.
///
/// Without further options: LeNet-5 with BatchNorm at the settings of Nguyen et al., 2023. A tenth of
/// the training images is kept as public: the statistics that BatchNorm needs for inference come from
/// them.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train", version)]
pub struct BatchOptions {
    /// Data set, and where it lies.
    #[command(flatten)]
    pub data: DataOptions,
    /// What is clipped.
    #[arg(long, value_enum)]
    pub clipping: UnitClippingName,
    /// How a mini-set's update is clipped.
    #[arg(long, value_enum, default_value_t = BatchPolicyName::Flat)]
    pub policy: BatchPolicyName,
    /// Network to train.
    #[arg(long, value_enum, default_value_t = BatchModelName::BnLenet5)]
    pub model: BatchModelName,
    /// Images in a mini-set; 1 is individual clipping.
    #[arg(long, value_name = "S", default_value_t = 64)]
    pub mini_set_size: usize,
    /// Mini-sets in a step.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub mini_sets: usize,
    /// Draw each mini-set independently: the guarantee is then for a whole mini-set added or removed.
    /// Without it, exactly K are drawn and the guarantee is for one image replaced.
    #[arg(long)]
    pub poisson: bool,
    /// Steps of local SGD with momentum on the mini-set, whose total change is clipped (general batch
    /// clipping); without it, the gradient is.
    #[arg(long, value_name = "N")]
    pub local_steps: Option<usize>,
    /// Learning rate of the local steps [default: 0.05].
    #[arg(long, allow_hyphen_values = true)]
    pub local_lr: Option<f64>,
    /// Clipping threshold of a mini-set's gradient; zhang has none [default: 0.2].
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    pub max_grad_norm: Option<f64>,
    /// What the thresholds are multiplied by after each pass over the data [default: 1].
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub threshold_decay: Option<f64>,
    /// Layerwise, zhang and multipliers: merge layers of similar norms on the public images into this
    /// many groups.
    #[arg(long, value_name = "N")]
    pub layer_groups: Option<usize>,
    /// Noise multiplier of a step. With one threshold it is the standard deviation of the noise over
    /// the threshold, twice the sigma of the paper, whose noise is 2 C sigma; with a threshold for each
    /// of L layers or groups it is that of each over √L [default: sigma = 0.5 of the paper].
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub noise_multiplier: Option<f64>,
    /// Privacy budget. Without --noise-multiplier the noise is calibrated to it; with it, the run
    /// stops before the step that would break it.
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub epsilon: Option<f64>,
    /// Probability with which the budget may be exceeded; less than 1/N.
    #[arg(long, value_name = "D", default_value_t = 1e-5, allow_hyphen_values = true)]
    pub delta: f64,
    /// Passes over the data.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub epochs: usize,
    /// Learning rate of the first epoch.
    #[arg(long, default_value_t = 0.025, allow_hyphen_values = true)]
    pub lr: f64,
    /// What the learning rate is multiplied by after each epoch.
    #[arg(long, default_value_t = 0.9, allow_hyphen_values = true)]
    pub lr_decay: f64,
    /// Backend to train on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Take sampling and noise from this seed: the run can be repeated, and nothing of it is
    /// private.
    #[arg(long, value_name = "N")]
    pub insecure_seed: Option<u64>,
    /// Go on from the last checkpoint in the output folder, with unchanged settings.
    #[arg(long)]
    pub resume: bool,
    /// Folder for the model, the privacy statement, the figures, the plot, and checkpoints.
    #[arg(long, value_name = "DIR", default_value = "out/batch-clipping")]
    pub output: PathBuf,
    /// File for the figures of the run [default: run.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Which images, and where they lie.
#[derive(Args, Debug, Clone)]
pub struct DataOptions {
    /// Data set to train on.
    #[arg(value_enum, default_value_t = DatasetName::Digits)]
    pub dataset: DatasetName,
    /// Folder with the four IDX files of MNIST, plain or gzip; the drawn digits need none [default: the
    /// variable BURN_DP_DATA, else the cache or download of burn-dataset].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Use only this many images to train on, public ones included [default: all; 12000 drawn
    /// digits].
    #[arg(long, value_name = "N")]
    pub train_size: Option<usize>,
    /// Use only this many images to test on [default: all; 2000 drawn digits].
    #[arg(long, value_name = "N")]
    pub test_size: Option<usize>,
    /// Images that are kept as public [default: a tenth].
    #[arg(long, value_name = "N")]
    pub public_size: Option<usize>,
    /// Seed of the initial weights, of the drawn digits, and of the membership in mini-sets.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

impl BatchOptions {
    /// Whether these arguments ask for batch clipping.
    pub fn are(arguments: &[String]) -> bool {
        arguments.iter().any(|argument| argument == "--clipping=batch")
            || arguments.windows(2).any(|pair| pair == ["--clipping", "batch"])
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
    /// Each layer to a threshold in proportion to its norm on the public images, measured anew after
    /// each epoch (enhanced adaptive layerwise clipping).
    Layerwise,
    /// Each layer to its norm on the public images, measured anew after each epoch, without a master
    /// threshold (Zhang et al.).
    Zhang,
    /// As a whole, after each layer was multiplied to the largest norm on the public images.
    Multipliers,
}

/// A network that batch clipping trains.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchModelName {
    /// LeNet-5 with a BatchNorm after each convolution.
    #[value(name = "bn-lenet5")]
    BnLenet5,
    /// LeNet-5 without.
    #[value(name = "lenet5")]
    Lenet5,
}

impl BatchModelName {
    /// Initializes the network.
    pub(crate) fn init(self, device: &Device) -> BnLeNet5 {
        BnLeNet5Config::new().with_batch_norm(self == Self::BnLenet5).init(device)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        BatchOptions::command().debug_assert();
    }

    #[test]
    fn batch_clipping_is_asked_for_in_either_spelling() {
        let are = |line: &str| {
            BatchOptions::are(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
        };
        assert!(are("mnist --clipping batch --epochs 2") && are("--clipping=batch"));
        assert!(!are("--clipping flat") && !are("batch"));
    }
}
