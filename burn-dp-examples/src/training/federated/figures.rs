//! The figures of a user-level run.

use serde::Serialize;

use crate::training::Evaluation;
use crate::training::progress::counted;
use crate::training::summary::Summary;

/// A measurement on the public users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoundFigures {
    /// Number of rounds so far.
    pub round: usize,
    /// Mean cross entropy of the predictions for public users.
    pub test_loss: f64,
    /// Share of their tokens that have the highest score.
    pub test_accuracy: f64,
    /// Upper bound of ε so far; absent if no finite bound is guaranteed.
    pub epsilon: Option<f64>,
    /// Clipping threshold of the next update of a user, all groups together. It depends only on
    /// noisy counts.
    pub threshold: f64,
    /// Mean norm of the updates of public users in each parameter: path and norm.
    pub update_norms: Vec<(String, f64)>,
}

/// Settings and results of a user-level run. All of it is public, except times, which are a side
/// channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FederatedFigures {
    /// Name of the data set.
    pub dataset: String,
    /// Whether the training was differentially private: false with an insecure seed.
    pub private: bool,
    /// The protected unit.
    pub unit: String,
    /// Upper bound of ε at the end; absent if no finite bound is guaranteed.
    pub epsilon: Option<f64>,
    /// δ at which ε is stated.
    pub delta: f64,
    /// Standard deviation of the noise over the sensitivity.
    pub noise_multiplier: f64,
    /// Probability that a user takes part in a round.
    pub sampling_probability: f64,
    /// Numbers of private and of public users.
    pub users: [usize; 2],
    /// Number of rounds.
    pub rounds: usize,
    /// Share of the tokens of public users that have the highest score, at the end.
    pub test_accuracy: f64,
    /// Mean cross entropy of the predictions for public users, at the end.
    pub test_loss: f64,
    /// The measurements.
    pub measurements: Vec<RoundFigures>,
    /// Mean norm of the updates of public users in each parameter, at the end: path and norm.
    pub update_norms: Vec<(String, f64)>,
    /// Norms of the private users, estimated by noisy counts: path, mean and median. Empty unless
    /// requested.
    pub private_norms: Vec<(String, f64, f64)>,
    /// Time of the rounds, without measurements.
    pub train_seconds: f64,
    /// Version of this crate.
    pub version: &'static str,
}

impl FederatedFigures {
    /// Returns the results in one line.
    pub(super) fn summary(&self) -> Summary<'_> {
        Summary {
            model: "next-token LSTM",
            dataset: &self.dataset,
            test: Evaluation { loss: self.test_loss, accuracy: self.test_accuracy },
            averaged_accuracy: None,
            epsilon: self.epsilon,
            delta: Some(self.delta),
            length: counted(self.rounds, "round"),
            seconds: self.train_seconds,
        }
    }
}
