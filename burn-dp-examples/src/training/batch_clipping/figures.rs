//! The figures of a run with mini-sets.

use serde::Serialize;

use crate::training::progress::counted;
use crate::training::summary::Summary;
use crate::training::{Augmentation, Evaluation};

/// A measurement after an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EpochFigures {
    /// Number of epochs so far.
    pub epoch: usize,
    /// Mean cross entropy of the test images.
    pub test_loss: f64,
    /// Share of the test images that are classified correctly.
    pub test_accuracy: f64,
    /// Upper bound of ε so far; absent if no finite bound is guaranteed.
    pub epsilon: Option<f64>,
}

/// Settings and results of a run with mini-sets. All of it is public, except times, which are a
/// side channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchFigures {
    /// Name of the data set.
    pub dataset: String,
    /// Name of the model.
    pub model: String,
    /// The clipping policy in words.
    pub clipping: String,
    /// Images in a mini-set.
    pub mini_set_size: usize,
    /// Mini-sets in a step.
    pub mini_sets: usize,
    /// Random copies of each image; absent without them.
    #[serde(flatten)]
    pub augmentation: Option<Augmentation>,
    /// The protected unit.
    pub unit: String,
    /// The neighboring relation.
    pub relation: String,
    /// Standard deviation of the noise over the clipping threshold.
    pub noise_multiplier: f64,
    /// δ at which ε is stated.
    pub delta: f64,
    /// Number of steps.
    pub steps: u64,
    /// Test accuracy at the end.
    pub test_accuracy: f64,
    /// Mean cross entropy of the test images at the end.
    pub test_loss: f64,
    /// Upper bound of ε at the end; absent if no finite bound is guaranteed.
    pub epsilon: Option<f64>,
    /// The measurements.
    pub epochs: Vec<EpochFigures>,
    /// Share of the values of the model that sparsification fixed; absent without it.
    pub fixed_share: Option<f64>,
    /// Time of the steps, without measurements.
    pub train_seconds: f64,
    /// Version of this crate.
    pub version: &'static str,
}

impl BatchFigures {
    /// Returns the results in one line.
    pub(super) fn summary(&self) -> Summary<'_> {
        Summary {
            model: &self.model,
            dataset: &self.dataset,
            test: Evaluation { loss: self.test_loss, accuracy: self.test_accuracy },
            averaged_accuracy: None,
            epsilon: self.epsilon,
            delta: Some(self.delta),
            length: counted(self.steps as usize, "step"),
            seconds: self.train_seconds,
        }
    }
}
