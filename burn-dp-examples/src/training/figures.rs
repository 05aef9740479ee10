//! The figures of a run, for tables and scripts.

use serde::Serialize;

use super::options::{OptimizerName, typed};
use super::{Evaluation, Settings};

/// What a run did and how well; written as JSON by `--json`.
///
/// It holds only what is public: settings, what the privacy statement says, and measurements on the
/// test set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunFigures {
    /// Name of the data set.
    pub dataset: String,
    /// Name of the model.
    pub model: String,
    /// Whether the training was differentially private.
    pub private: bool,
    /// Upper bound of ε at the end; nothing without privacy.
    pub epsilon: Option<f64>,
    /// δ at which ε is meant; nothing without privacy.
    pub delta: Option<f64>,
    /// Standard deviation of the noise over the sensitivity; nothing without privacy.
    pub noise_multiplier: Option<f64>,
    /// Probability with which an example takes part in a step; nothing without privacy.
    pub sampling_probability: Option<f64>,
    /// Number of steps.
    pub steps: usize,
    /// Expected size of a logical batch.
    pub expected_batch_size: usize,
    /// Clipping threshold; nothing without privacy.
    pub max_grad_norm: Option<f64>,
    /// Share of the test images that are classified correctly.
    pub test_accuracy: f64,
    /// Mean cross entropy on the test images.
    pub test_loss: f64,
    /// Number of images to train on.
    pub train_items: usize,
    /// Number of images to test on.
    pub test_items: usize,
    /// Time of the steps, evaluations left out; of this process only if the run was resumed.
    pub train_seconds: f64,
    /// Seed of the initial weights and of the drawn digits.
    pub seed: u64,
    /// Name of the backend.
    pub backend: String,
    /// Name of the optimizer.
    pub optimizer: String,
    /// Learning rate.
    pub lr: f64,
    /// Momentum; nothing for optimizers without.
    pub momentum: Option<f64>,
    /// Version of this crate.
    pub version: &'static str,
}

/// The privacy that a run has spent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spent {
    pub(super) epsilon: f64,
    pub(super) noise_multiplier: f64,
    pub(super) sampling_probability: f64,
}

/// What the settings do not know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outcome {
    pub(super) steps: usize,
    pub(super) items: [usize; 2],
    pub(super) test: Evaluation,
    pub(super) seconds: f64,
    pub(super) spent: Option<Spent>,
}

impl RunFigures {
    pub(super) fn new(dataset: String, settings: &Settings, outcome: Outcome) -> Self {
        let Outcome { steps, items: [train_items, test_items], test, seconds, spent } = outcome;
        let momentum = settings.optimizer == OptimizerName::Sgd;
        Self {
            dataset,
            model: typed(settings.model),
            private: settings.privacy.is_some(),
            epsilon: spent.map(|spent| spent.epsilon),
            delta: settings.privacy.map(|privacy| privacy.delta),
            noise_multiplier: spent.map(|spent| spent.noise_multiplier),
            sampling_probability: spent.map(|spent| spent.sampling_probability),
            steps,
            expected_batch_size: settings.batch_size,
            max_grad_norm: settings.privacy.map(|privacy| privacy.max_grad_norm),
            test_accuracy: test.accuracy,
            test_loss: test.loss,
            train_items,
            test_items,
            train_seconds: seconds,
            seed: settings.seed,
            backend: typed(settings.backend),
            optimizer: typed(settings.optimizer),
            lr: settings.lr,
            momentum: momentum.then_some(settings.momentum),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}
