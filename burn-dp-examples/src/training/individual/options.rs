//! Command-line options of training with individual clipping, and of ordinary training.

use std::path::PathBuf;

use clap::Args;

use super::ScheduleName;
use crate::training::options::{OptimizerName, Precision, headings};

/// How a classifier is trained; defaults depend on the data set and the network.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = headings::CLASSIFIERS)]
pub struct IndividualOptions {
    /// Expected size of a logical batch; by default each example is drawn with probability batch
    /// size / N.
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Maximum number of examples in memory at once (the physical batch). It changes only speed,
    /// memory, and rounding [default: 256].
    #[arg(long, value_name = "N", help_heading = headings::INDIVIDUAL)]
    pub physical_batch_size: Option<usize>,
    /// Precision of the forward and backward passes; everything else is in single precision
    /// [default: f32].
    #[arg(long, value_enum, help_heading = headings::INDIVIDUAL)]
    pub precision: Option<Precision>,
    /// Measured costs of the device, which determine the fastest way to compute the norms: a file
    /// from `cargo xtask bench device-costs --json FILE`. They change only speed, memory, and
    /// rounding.
    #[arg(long, value_name = "FILE", help_heading = headings::INDIVIDUAL)]
    pub device_costs: Option<PathBuf>,
    /// Length of the training in steps, in place of --epochs.
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Rule that turns gradients into updates.
    #[arg(long, value_enum)]
    pub optimizer: Option<OptimizerName>,
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
    /// Train the same model in the ordinary way: no clipping, no noise, no guarantee.
    #[arg(long)]
    pub non_private: bool,
    /// Quantile: a threshold for each layer.
    #[arg(long, help_heading = headings::INDIVIDUAL)]
    pub quantile_per_layer: bool,
    /// Quantile: standard deviation of the noise on each count [default: 1/20 of the batch size].
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    #[arg(help_heading = headings::INDIVIDUAL)]
    pub count_noise: Option<f64>,
    /// With --resume: continue after the last released step where the steps since the checkpoint
    /// cannot be repeated bit for bit (on another machine, for example). Their privacy stays spent;
    /// their updates are lost.
    #[arg(long, help_heading = headings::INDIVIDUAL)]
    pub skip_lost_steps: bool,
}
