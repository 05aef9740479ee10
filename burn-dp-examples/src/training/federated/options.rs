//! Command-line options of user-level training.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::training::options::{
    Given, OptimizerName, PrivacyOptions, RecipeOptions, RunOptions, TrainingOptions, as_typed,
    with_default,
};
use crate::training::sampling::SamplingOptions;

/// Train a language model on the text of many users with user-level differential privacy.
///
/// The guarantee is for everything that one user (a speaking role) says. A tenth of the users is
/// public: they are used to evaluate the model and are never trained on.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train", version)]
#[command(mut_arg("epsilon", |arg| with_default(arg, "8")))]
#[command(mut_arg("delta", |arg| arg.default_value("1e-4")))]
#[command(mut_arg("output", |arg| arg.default_value("out/federated")))]
pub struct FederatedOptions {
    /// Data set to train on.
    #[arg(value_enum)]
    pub dataset: UserDatasetName,
    /// Protect users, not single examples. The plays support no other mode.
    #[arg(long)]
    pub federated: bool,
    /// Folder with shakespeare-users.jsonl, plain or gzip [default: the variable BURN_DP_DATA].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Budget and noise.
    #[command(flatten)]
    pub privacy: PrivacyOptions,
    /// Sampler and correlated noise.
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Users, rounds, clipping and model.
    #[command(flatten)]
    pub training: RoundOptions,
    /// Rounds between two measurements, which are also checkpoints.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub evaluate_every: usize,
    /// Seed of the initial weights. Noise and sampling never use it.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Backend and output.
    #[command(flatten)]
    pub run: RunOptions,
    /// Options by name.
    #[command(flatten)]
    pub recipe: RecipeOptions,
    #[arg(skip)]
    pub(super) given: Given,
}

/// Users, rounds, clipping and model. A resumed run must share all of them.
#[derive(clap::Args, Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Training")]
pub struct RoundOptions {
    /// Use only this many of the users, public ones included [default: all].
    #[arg(long, value_name = "N")]
    pub users: Option<usize>,
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
    /// How the update of a user is clipped.
    #[arg(long, value_enum, default_value_t = UserClippingName::Quantile)]
    #[serde(serialize_with = "as_typed")]
    pub clipping: UserClippingName,
    /// Clipping threshold of the update of a user; for quantile clipping the initial threshold
    /// [default: 1; 0.1 for quantile clipping].
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    pub max_update_norm: Option<f64>,
    /// Quantile clipping: fraction of the users whose update should not be clipped.
    #[arg(long, value_name = "Q", default_value_t = 0.5, allow_hyphen_values = true)]
    pub target_quantile: f64,
    /// Quantile clipping: learning rate of the threshold.
    #[arg(long, value_name = "ETA", default_value_t = 0.2, allow_hyphen_values = true)]
    pub quantile_lr: f64,
    /// Share of a round's privacy cost that the counts of quantile clipping and of --track-norms
    /// may use.
    #[arg(long, value_name = "S", default_value_t = 0.1, allow_hyphen_values = true)]
    pub count_share: f64,
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
    /// Federated averaging: learning rate of the local steps of a user.
    #[arg(long, default_value_t = 1.0, allow_hyphen_values = true)]
    pub local_lr: f64,
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
    /// Momentum of the server's sgd.
    #[arg(long, default_value_t = 0.9, allow_hyphen_values = true)]
    pub server_momentum: f64,
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

impl TrainingOptions for FederatedOptions {
    fn given_mut(&mut self) -> &mut Given {
        &mut self.given
    }
}

/// A data set whose examples belong to users.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserDatasetName {
    /// The plays by speaking role.
    Shakespeare,
}

/// How the update of a user is clipped.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserClippingName {
    /// As a whole, to a given threshold.
    Flat,
    /// As a whole, to a threshold that follows a quantile of the norms, privately estimated.
    Quantile,
    /// Each parameter to its own threshold, which follows the quantile of its norms.
    LayerQuantile,
    /// Each parameter to the same threshold; together they have the given one.
    PerLayer,
    /// Every update to the same norm.
    Automatic,
    /// Each parameter to a threshold proportional to its norm for public users, updated with each
    /// measurement.
    Layerwise,
}

/// The computation of a user in a round.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlgorithmName {
    /// Federated averaging: local epochs; the total change is released.
    FedAvg,
    /// Federated SGD: one gradient.
    FedSgd,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        FederatedOptions::command().debug_assert();
    }
}
