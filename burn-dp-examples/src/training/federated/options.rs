//! The options of user-level training, as they are typed.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::training::{BackendName, OptimizerName};

/// Train a language model on text of many users with user-level differential privacy.
///
/// The guarantee is for everything that one user (a speaking role) says. A tenth of the users is kept
/// as public: they measure the model and are never trained on.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train", version)]
pub struct FederatedOptions {
    /// Data set to train on.
    #[arg(value_enum)]
    pub dataset: UserDatasetName,
    /// Protect users, not single examples. The plays are trained in no other way.
    #[arg(long)]
    pub federated: bool,
    /// Folder with shakespeare-users.jsonl, plain or gzip [default: the variable BURN_DP_DATA].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Use only this many of the users, public ones included [default: all].
    #[arg(long, value_name = "N")]
    pub users: Option<usize>,
    /// File with a public list of words, one a line: predict words instead of characters.
    #[arg(long, value_name = "FILE")]
    pub vocabulary: Option<PathBuf>,
    /// What a user computes in a round.
    #[arg(long, value_enum, default_value_t = AlgorithmName::FedAvg)]
    pub algorithm: AlgorithmName,
    /// Length of the training in rounds.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub rounds: usize,
    /// Expected number of users in a round; each is drawn with probability users per round / users.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub users_per_round: usize,
    /// Privacy budget: the noise is calibrated to end at this epsilon [default: 8].
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub epsilon: Option<f64>,
    /// Probability with which the budget may be exceeded; less than 1 / users.
    #[arg(long, value_name = "D", default_value_t = 1e-4, allow_hyphen_values = true)]
    pub delta: f64,
    /// Standard deviation of the noise over the clipping threshold. Together with --epsilon, the
    /// run stops before the round that would break the budget.
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub noise_multiplier: Option<f64>,
    /// How a user's update is clipped.
    #[arg(long, value_enum, default_value_t = UserClippingName::Quantile)]
    pub clipping: UserClippingName,
    /// Clipping threshold of a user's update; of quantile clipping the one that it begins with
    /// [default: 1; 0.1 for quantile clipping].
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    pub max_update_norm: Option<f64>,
    /// Quantile clipping: fraction of the users whose update it leaves as it is [default: 0.5].
    #[arg(long, value_name = "Q", allow_hyphen_values = true)]
    pub target_quantile: Option<f64>,
    /// Quantile clipping: learning rate of the threshold [default: 0.2].
    #[arg(long, value_name = "ETA", allow_hyphen_values = true)]
    pub quantile_lr: Option<f64>,
    /// Share of a round's privacy cost that the counts of quantile clipping and of --track-norms may use
    /// [default: 0.1].
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub count_share: Option<f64>,
    /// Also estimate the mean and the median norm of the private users' updates in each parameter, by
    /// noisy counts.
    #[arg(long)]
    pub track_norms: bool,
    /// Federated averaging: passes of a user over their examples in a round [default: 1].
    #[arg(long, value_name = "N")]
    pub local_epochs: Option<usize>,
    /// Federated averaging: examples in a local batch [default: 16].
    #[arg(long, value_name = "N")]
    pub local_batch_size: Option<usize>,
    /// Federated averaging: learning rate of the local steps of a user [default: 1].
    #[arg(long, allow_hyphen_values = true)]
    pub local_lr: Option<f64>,
    /// Examples of a user that are used in a round.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_examples: usize,
    /// Rule by which the server applies the noisy mean update.
    #[arg(long, value_enum, default_value_t = OptimizerName::Sgd)]
    pub server_optimizer: OptimizerName,
    /// Learning rate of the server.
    #[arg(long, default_value_t = 1.0, allow_hyphen_values = true)]
    pub server_lr: f64,
    /// Momentum of the server's sgd [default: 0.9].
    #[arg(long, allow_hyphen_values = true)]
    pub server_momentum: Option<f64>,
    /// Predictions in an example.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub length: usize,
    /// Width of the embedding.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub embedding: usize,
    /// Width of the LSTM.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub hidden: usize,
    /// Rounds between two measurements, which are also checkpoints.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub evaluate_every: usize,
    /// Backend to train on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Seed of the initial weights. Noise and sampling never use it.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Take sampling and noise from this seed: the run can be repeated, and nothing of it is
    /// private.
    #[arg(long, value_name = "N")]
    pub insecure_seed: Option<u64>,
    /// Go on from the last checkpoint in the output folder, with unchanged settings.
    #[arg(long)]
    pub resume: bool,
    /// Folder for the model, the privacy statement, figures, plots, and checkpoints.
    #[arg(long, value_name = "DIR", default_value = "out/federated")]
    pub output: PathBuf,
    /// File for the figures of the run [default: run.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl FederatedOptions {
    /// Whether these arguments ask for user-level training.
    pub fn are(arguments: &[String]) -> bool {
        let name = UserDatasetName::Shakespeare.to_possible_value();
        let names = name.iter().map(|value| value.get_name());
        arguments
            .iter()
            .any(|argument| argument == "--federated" || names.clone().any(|n| argument == n))
    }
}

/// A data set whose examples belong to users.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserDatasetName {
    /// The plays by speaking role.
    Shakespeare,
}

/// How a user's update is clipped.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserClippingName {
    /// As a whole, to a given threshold.
    Flat,
    /// As a whole, to a threshold that follows a quantile of the norms, privately estimated.
    Quantile,
    /// Each layer to a threshold of its own that follows the quantile of its norms.
    LayerQuantile,
}

/// What a user computes in a round.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlgorithmName {
    /// Federated averaging: local epochs, the total change is released.
    FedAvg,
    /// Federated SGD: one gradient.
    FedSgd,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        FederatedOptions::command().debug_assert();
    }

    #[test]
    fn the_data_set_or_the_flag_asks_for_users() {
        let are = |line: &str| {
            FederatedOptions::are(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
        };
        assert!(are("shakespeare --rounds 3") && are("mnist --federated"));
        assert!(!are("mnist --epochs 3") && !are(""));
    }
}
