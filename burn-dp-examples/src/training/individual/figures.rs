//! The figures of a run, for tables and scripts.

use std::collections::BTreeMap;

use serde::Serialize;

use burn_dp::optim::{DpOptimizer, PrivacyPlan};

use super::IndividualSettings;
use crate::data::folder;
use crate::training::options::{ClippingName, DatasetName, OptimizerName, typed};
use crate::training::progress::{Column, EPSILON, TEST_ACCURACY, TEST_LOSS, counted};
use crate::training::statement::{Described, published_number};
use crate::training::summary::Summary;
use crate::training::{Evaluation, TrainError};

/// Settings and results of a run, written as JSON by `--json`.
///
/// Settings, the numbers of the privacy statement, and measurements on the test set. Nothing else
/// depends on the private data, except times, which are a side channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunFigures {
    /// Name of the data set.
    pub dataset: String,
    /// Name of the model.
    pub model: String,
    /// Whether the training was differentially private: false even with an insecure seed.
    pub private: bool,
    /// Upper bound of ε at the end; absent if no finite bound is guaranteed.
    pub epsilon: Option<f64>,
    /// δ at which ε is stated; absent without privacy.
    pub delta: Option<f64>,
    /// Standard deviation of the noise over the sensitivity; absent without privacy.
    pub noise_multiplier: Option<f64>,
    /// Probability that an example takes part in a step; absent without privacy.
    pub sampling_probability: Option<f64>,
    /// Number of steps.
    pub steps: usize,
    /// Expected size of a logical batch.
    pub expected_batch_size: usize,
    /// Clipping threshold; absent without privacy, and where public norms are the thresholds.
    pub max_grad_norm: Option<f64>,
    /// The clipping policy in words; absent without privacy.
    pub clipping: Option<String>,
    /// Values that the policy adapted, at the end, by name.
    pub thresholds: BTreeMap<String, f64>,
    /// Share of the test examples that are classified correctly.
    pub test_accuracy: f64,
    /// Mean cross entropy on the test examples.
    pub test_loss: f64,
    /// Share of the test examples that the averaged weights classify correctly, if there are any.
    pub averaged_test_accuracy: Option<f64>,
    /// Mean cross entropy of the averaged weights on the test examples.
    pub averaged_test_loss: Option<f64>,
    /// Decay of the average of the weights.
    pub ema_decay: Option<f64>,
    /// Number of examples to train on.
    pub train_items: usize,
    /// Number of examples to test on.
    pub test_items: usize,
    /// Time of the steps without evaluations; after a resumption, the time of this process only.
    pub train_seconds: f64,
    /// Seed of the initial weights and of the synthetic digits.
    pub seed: u64,
    /// Known seed of sampling and noise; such a run is not private.
    pub insecure_seed: Option<u64>,
    /// Name of the backend.
    pub backend: String,
    /// Precision of the forward and backward passes.
    pub precision: String,
    /// Name of the optimizer.
    pub optimizer: String,
    /// Learning rate of the first step.
    pub lr: f64,
    /// How the learning rate changed.
    pub schedule: String,
    /// Momentum; absent for optimizers without momentum.
    pub momentum: Option<f64>,
    /// Version of this crate.
    pub version: &'static str,
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) steps: usize,
    pub(super) items: [usize; 2],
    pub(super) test: Evaluation,
    /// The evaluation of the averaged weights.
    pub(super) averaged: Option<Evaluation>,
    pub(super) seconds: f64,
}

impl RunFigures {
    /// Collects the figures of a run; `optim` is absent in ordinary training.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the accountant cannot analyze the ledger.
    pub(super) fn new(
        dataset: String,
        settings: &IndividualSettings,
        outcome: Outcome,
        optim: Option<&DpOptimizer>,
    ) -> Result<Self, TrainError> {
        let Outcome { steps, items: [train_items, test_items], test, averaged, seconds } = outcome;
        let (plan, private) = (optim.map(DpOptimizer::plan), settings.private);
        let delta = private.map(|private| private.privacy.delta);
        let spent =
            optim.zip(delta).map(|(optim, delta)| optim.privacy_spent(delta)).transpose()?;
        let epsilon = spent.map(|spent| spent.upper).filter(|epsilon| epsilon.is_finite());
        let adapted = plan.map(|plan| plan.clipping().adapted()).unwrap_or_default();
        Ok(Self {
            dataset,
            model: typed(settings.model),
            private: epsilon.is_some(),
            epsilon,
            delta,
            noise_multiplier: plan.map(PrivacyPlan::noise_multiplier),
            sampling_probability: plan.map(PrivacyPlan::sampling_probability),
            steps,
            expected_batch_size: settings.mean_batch(train_items),
            max_grad_norm: private
                .filter(|private| private.clipping.name != ClippingName::Zhang)
                .map(|private| private.max_grad_norm),
            clipping: plan.map(|plan| plan.clipping().describe()),
            thresholds: adapted.into_iter().collect(),
            test_accuracy: test.accuracy,
            test_loss: test.loss,
            averaged_test_accuracy: averaged.map(|test| test.accuracy),
            averaged_test_loss: averaged.map(|test| test.loss),
            ema_decay: settings.ema_decay,
            train_items,
            test_items,
            train_seconds: seconds,
            seed: settings.data.seed,
            insecure_seed: private.and_then(|private| private.privacy.insecure_seed),
            backend: typed(settings.backend),
            precision: typed(settings.precision),
            optimizer: typed(settings.optimizer),
            lr: settings.lr,
            schedule: typed(settings.schedule),
            momentum: (settings.optimizer == OptimizerName::Sgd).then_some(settings.momentum),
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    /// Returns the results in one line.
    pub(super) fn summary(&self) -> Summary<'_> {
        Summary {
            model: &self.model,
            dataset: &self.dataset,
            test: Evaluation { loss: self.test_loss, accuracy: self.test_accuracy },
            averaged_accuracy: self.averaged_test_accuracy,
            epsilon: self.epsilon,
            delta: self.delta,
            length: counted(self.steps, "step"),
            seconds: self.train_seconds,
        }
    }
}

/// Returns the columns of the table.
pub(super) fn columns(private: bool) -> Vec<Column> {
    let mut columns = vec![
        ("epoch", 7, "passes over the data"),
        ("step", 8, "steps so far"),
        TEST_LOSS,
        TEST_ACCURACY,
    ];
    if private {
        columns.push(EPSILON);
    }
    columns.push(("examples/s", 10, "expected examples per second of training"));
    columns
}

/// Returns what the program says about a run.
pub(super) fn described(settings: &IndividualSettings, dataset: &str) -> Described {
    let inputs = if settings.data.dataset == DatasetName::Imdb { "texts" } else { "images" };
    let test = format!("The {inputs} and labels of the test set, which is taken as public.");
    let classes = (dataset == folder::NAME)
        .then(|| "The classes, which are the names of the folders of images.".to_string());
    let sentences = [published_number("examples"), test].into_iter();
    let not_covered = sentences.chain(settings.data.not_covered()).chain(classes).collect();
    Described { facts: vec![("dataset", dataset.into())], not_covered }
}
