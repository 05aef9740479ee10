//! Command-line options of training with individual clipping.

use std::path::PathBuf;

use clap::Parser;

use super::{ClippingOptions, InputOptions, ScheduleName};
use crate::models::ModelName;
use crate::training::options::{
    DataOptions, Given, OptimizerName, Precision, PrivacyOptions, RecipeOptions, RunOptions,
    TrainingOptions, with_default,
};
use crate::training::sampling::SamplingOptions;

/// Train a classifier of images or texts with differential privacy.
///
/// Without options: the convolutional network on drawn digits, at epsilon = 3. Options that are not
/// given are taken from the recipe of the data set and the network. Two other training modes have
/// their own options: `train --clipping batch --help` (mini-sets, BatchNorm) and `train shakespeare
/// --help` (user-level privacy).
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train", version)]
#[command(mut_arg("epsilon", |arg| with_default(arg, "3")))]
#[command(mut_arg("delta", |arg| with_default(arg, "1e-5")))]
pub struct IndividualOptions {
    /// Data set and its size.
    #[command(flatten)]
    pub data: DataOptions,
    /// Options of some data sets and networks.
    #[command(flatten)]
    pub inputs: InputOptions,
    /// Budget and noise.
    #[command(flatten)]
    pub privacy: PrivacyOptions,
    /// Clipping policy.
    #[command(flatten)]
    pub clipping: ClippingOptions,
    /// Sampler and correlated noise.
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Model, length and optimizer.
    #[command(flatten)]
    pub training: TrainingRecipeOptions,
    /// Backend and output.
    #[command(flatten)]
    pub run: RunOptions,
    /// Options by name.
    #[command(flatten)]
    pub recipe: RecipeOptions,
    /// With --resume: continue after the last released step where the steps since the checkpoint
    /// cannot be repeated bit for bit (on another machine, for example). Their privacy stays spent;
    /// their updates are lost.
    #[arg(long, requires = "resume")]
    pub skip_lost_steps: bool,
    /// Train the same model in the ordinary way: no clipping, no noise, no guarantee.
    #[arg(long)]
    pub non_private: bool,
    #[arg(skip)]
    pub(in crate::training) given: Given,
}

/// How the model is trained; options that are not given come from the recipe.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Training")]
pub struct TrainingRecipeOptions {
    /// Network to train [default: transformer for imdb, else cnn].
    #[arg(long, value_enum)]
    pub model: Option<ModelName>,
    /// Expected size of a logical batch; by default each example is drawn with probability batch
    /// size / N.
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Maximum number of examples in memory at once (the physical batch). It changes only speed,
    /// memory, and rounding [default: 256].
    #[arg(long, value_name = "N")]
    pub physical_batch_size: Option<usize>,
    /// Precision of the forward and backward passes; everything else is in single precision
    /// [default: f32].
    #[arg(long, value_enum)]
    pub precision: Option<Precision>,
    /// Measured costs of the device, which determine the fastest way to compute the norms: a file
    /// from `cargo xtask bench device-costs --json FILE`. They change only speed, memory, and
    /// rounding.
    #[arg(long, value_name = "FILE")]
    pub device_costs: Option<PathBuf>,
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
    /// Average the weights over the steps with this decay, for example 0.999. It costs no privacy.
    /// The averaged model is evaluated and written next to the trained one.
    #[arg(long, value_name = "DECAY", allow_hyphen_values = true)]
    pub ema_decay: Option<f64>,
}

impl TrainingOptions for IndividualOptions {
    fn given_mut(&mut self) -> &mut Given {
        &mut self.given
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        IndividualOptions::command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_a_value_and_not_an_option() {
        let options = IndividualOptions::read(["train", "--epsilon", "-1"]).unwrap();
        assert_eq!(options.privacy.epsilon, Some(-1.0));
        assert_eq!(options.given.first_of(&["--delta", "--epsilon"]), Some(("--epsilon", "-1")));
        let options = IndividualOptions::read(["train", "--non-private"]).unwrap();
        assert_eq!(options.given.first_of(&["--non-private"]), Some(("--non-private", "")));
        assert_eq!(options.given.first_of(&["--clipping", "--seed"]), None);
    }
}
