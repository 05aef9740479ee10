//! Command-line options of user-level training.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::training::options::{OptimizerName, as_typed, headings};

/// Users, rounds and model. A resumed run must share them.
#[derive(Args, Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = headings::USERS)]
pub struct RoundOptions {
    /// Use only this many of the users, the first ones of the file, public ones included; the
    /// guarantee is then for these, and the statement says so [default: all].
    #[arg(long, value_name = "N")]
    pub users: Option<usize>,
    /// With --clipping layerwise, zhang or multipliers, or with --layer-groups: let thresholds and
    /// groups follow from the roles of --data-dir that are held out, about one in ten.
    #[arg(long)]
    #[serde(skip)]
    pub public_users: bool,
    /// File with a public list of words, one per line: predict words instead of characters.
    #[arg(long, value_name = "FILE")]
    pub vocabulary: Option<PathBuf>,
    /// The computation of a user in a round.
    #[arg(long, value_enum, default_value_t = AlgorithmName::FedAvg)]
    #[serde(serialize_with = "as_typed")]
    pub algorithm: AlgorithmName,
    /// Length of the training in rounds.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub rounds: usize,
    /// Expected number of users in a round; each is drawn with probability users per round / users.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub users_per_round: usize,
    /// Clipping threshold of the update of a user; for quantile clipping the initial threshold
    /// [default: 1; 0.1 for quantile clipping].
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    pub max_update_norm: Option<f64>,
    /// Also estimate the mean and the median norm of the private users' updates in each parameter,
    /// by noisy counts.
    #[arg(long)]
    pub track_norms: bool,
    /// Federated averaging: passes of a user over their examples in a round.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub local_epochs: usize,
    /// Federated averaging: examples in a local batch.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub local_batch_size: usize,
    /// Examples of a user that are used in a round.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_examples: usize,
    /// Rule by which the server applies the noisy mean update.
    #[arg(long, value_enum, default_value_t = OptimizerName::Sgd)]
    #[serde(serialize_with = "as_typed")]
    pub server_optimizer: OptimizerName,
    /// Learning rate of the server.
    #[arg(long, default_value_t = 1.0, allow_hyphen_values = true)]
    pub server_lr: f64,
    /// Divide --server-lr by the clipping threshold of each round, so that the size of a step does
    /// not follow the threshold.
    #[arg(long)]
    pub server_lr_over_threshold: bool,
    /// Momentum of the server's sgd.
    #[arg(long, default_value_t = 0.9, allow_hyphen_values = true)]
    pub server_momentum: f64,
    /// Rounds between two measurements, which are also checkpoints.
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[serde(skip)]
    pub evaluate_every: usize,
    /// Predictions in an example.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub length: usize,
    /// Width of the embedding.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub embedding: usize,
    /// Width of the LSTM.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub hidden: usize,
    /// Also use the embedding of the tokens as the last layer.
    #[arg(long)]
    pub tied: bool,
}

/// The computation of a user in a round.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlgorithmName {
    /// Federated averaging: local epochs; the total change is released.
    FedAvg,
    /// Federated SGD: one gradient.
    FedSgd,
}
