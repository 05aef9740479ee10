//! The figures of a user-level run.

use serde::Serialize;

/// A measurement on the public users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoundFigures {
    /// Number of rounds made so far.
    pub round: usize,
    /// Mean cross entropy of the predictions for public users.
    pub test_loss: f64,
    /// Share of their tokens that have the highest score.
    pub test_accuracy: f64,
    /// Upper bound of ε so far; nothing if no finite one is guaranteed.
    pub epsilon: Option<f64>,
    /// What the next update of a user is clipped to, all groups together: it follows from noisy counts
    /// only.
    pub threshold: f64,
}

/// What a user-level run did and how well. It holds only what is public.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FederatedFigures {
    /// Name of the data set.
    pub dataset: String,
    /// Whether the training was differentially private: false with an insecure seed.
    pub private: bool,
    /// What is protected.
    pub unit: String,
    /// Upper bound of ε at the end; nothing if no finite one is guaranteed.
    pub epsilon: Option<f64>,
    /// δ at which ε is meant.
    pub delta: f64,
    /// Standard deviation of the noise over the sensitivity.
    pub noise_multiplier: f64,
    /// Probability with which a user takes part in a round.
    pub sampling_probability: f64,
    /// Users who were trained on, and public ones.
    pub users: [usize; 2],
    /// Number of rounds.
    pub rounds: usize,
    /// The measurements.
    pub measurements: Vec<RoundFigures>,
    /// Norm of the update of a public user in each parameter, mean over the users: path and norm.
    pub update_norms: Vec<(String, f64)>,
    /// The same of the private users, estimated by noisy counts: path, mean and median. Empty unless
    /// asked for.
    pub private_norms: Vec<(String, f64, f64)>,
    /// Time of the rounds, measurements left out.
    pub train_seconds: f64,
    /// Version of this crate.
    pub version: &'static str,
}
