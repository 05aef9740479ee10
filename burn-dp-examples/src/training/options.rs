//! The options of the training program, as they are typed.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::inputs::InputOptions;
use super::{ClippingOptions, ScheduleName};
use crate::models::ModelName;

/// Train a classifier of images or texts with differential privacy.
///
/// Without options: the convolutional network on the embedded data set, at epsilon = 3. What is not
/// given is taken from the recipe of the data set, which the table of the README was made with.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train", version)]
pub struct TrainOptions {
    /// Data set to train on.
    #[arg(value_enum, default_value_t = DatasetName::Digits)]
    pub dataset: DatasetName,
    /// Folder with the files of the data set, as they are published: IDX files, plain or gzip (mnist,
    /// fashion-mnist), the binary version (cifar10), aclImdb (imdb), train/CLASS/*.png and test/CLASS
    /// (folder) [default: the variable BURN_DP_DATA; for mnist else the cache or download of
    /// burn-dataset].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Use only this many examples to train on [default: all; 12000 drawn digits].
    #[arg(long, value_name = "N")]
    pub train_size: Option<usize>,
    /// Use only this many examples to test on [default: all; 2000 drawn digits].
    #[arg(long, value_name = "N")]
    pub test_size: Option<usize>,
    /// Network to train [default: transformer for imdb, else cnn].
    #[arg(long, value_enum)]
    pub model: Option<ModelName>,
    /// Options of some data sets and networks.
    #[command(flatten)]
    pub inputs: InputOptions,
    /// Privacy budget: the noise is calibrated to end at this epsilon [default: 3].
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub epsilon: Option<f64>,
    /// Probability with which the budget may be exceeded; less than 1/N [default: 1e-5].
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub delta: Option<f64>,
    /// Standard deviation of the noise over the clipping threshold. Together with --epsilon, the
    /// run stops before the step that would break the budget.
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub noise_multiplier: Option<f64>,
    /// Clipping threshold of each example's gradient.
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    pub max_grad_norm: Option<f64>,
    /// Which policy clips, and its options.
    #[command(flatten)]
    pub clipping: ClippingOptions,
    /// Expected size of a logical batch; each example is drawn with probability batch size / N.
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Largest number of examples that go through the network together; saves memory, changes
    /// nothing but the rounding.
    #[arg(long, value_name = "N")]
    pub physical_batch_size: Option<usize>,
    /// Length of the training in passes over the data.
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Length of the training in steps, in place of --epochs.
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Rule that turns gradients into updates.
    #[arg(long, value_enum)]
    pub optimizer: Option<OptimizerName>,
    /// Learning rate.
    #[arg(long, allow_hyphen_values = true)]
    pub lr: Option<f64>,
    /// How the learning rate changes over the training.
    #[arg(long, value_enum)]
    pub schedule: Option<ScheduleName>,
    /// Momentum of sgd.
    #[arg(long, allow_hyphen_values = true)]
    pub momentum: Option<f64>,
    /// Average the weights over the steps, each step of age n with the weight of this number to the n, for
    /// example 0.999: costs no privacy. The averaged model is evaluated and written beside the trained one.
    #[arg(long, value_name = "DECAY", allow_hyphen_values = true)]
    pub ema_decay: Option<f64>,
    /// Backend to train on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Train the same model the ordinary way: no clipping, no noise, no guarantee.
    #[arg(long)]
    pub non_private: bool,
    /// Seed of the initial weights and of the drawn digits. Noise and sampling never use it: they
    /// are seeded by the operating system.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Take sampling and noise from this seed: the run can be repeated, and nothing of it is
    /// private. For tests and for experiments on public data.
    #[arg(long, value_name = "N")]
    pub insecure_seed: Option<u64>,
    /// Go on from the last checkpoint in the output folder, with unchanged settings.
    #[arg(long)]
    pub resume: bool,
    /// With --resume: go on behind the last step that was released, where the steps since the checkpoint do
    /// not come out the same bit for bit (on another machine, say). They stay paid for; what they taught is lost.
    #[arg(long, requires = "resume")]
    pub skip_lost_steps: bool,
    /// Folder for the model, the privacy statement and the checkpoints of an unfinished run.
    #[arg(long, value_name = "DIR", default_value = "out/train")]
    pub output: PathBuf,
    /// File for the figures of the run [default: run.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A data set that the program knows.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetName {
    /// The embedded drawn digits.
    Digits,
    /// The original MNIST.
    Mnist,
    /// Articles of clothing, in the format of MNIST.
    FashionMnist,
    /// Small photographs of ten classes.
    #[value(name = "cifar10")]
    Cifar10,
    /// Film reviews, positive and negative.
    Imdb,
    /// Images in one folder a class.
    Folder,
}

/// A rule that turns gradients into updates.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimizerName {
    /// Stochastic gradient descent, with momentum.
    Sgd,
    /// Adam.
    Adam,
}

/// A backend of Burn.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendName {
    /// The CPU backend written for Burn.
    Flex,
    /// The older CPU backend.
    Ndarray,
    /// GPUs through WebGPU.
    Wgpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// The name of a choice, as it is typed.
pub(super) fn typed(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        TrainOptions::command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_a_value_and_not_an_option() {
        let options = TrainOptions::try_parse_from(["train", "--epsilon", "-1"]).unwrap();
        assert_eq!(options.epsilon, Some(-1.0));
    }

    #[test]
    fn choices_are_named_as_they_are_typed() {
        assert_eq!(typed(BackendName::Ndarray), "ndarray");
        assert_eq!(typed(DatasetName::Digits), "digits");
    }
}
