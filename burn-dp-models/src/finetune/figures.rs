//! The figures of a run.

use std::path::PathBuf;
use std::time::Duration;

use burn_dp_examples::training::Evaluation;
use burn_dp_examples::training::progress::{Column, EPSILON, percent, significant, upwards};
use serde::Serialize;

use super::canaries::Exposures;

/// Settings and results of a run. All of it is public, except times and memory, which are a side
/// channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FinetuneFigures {
    /// `classify` or `generate`.
    pub task: &'static str,
    /// Folder of the pre-trained model.
    pub model: PathBuf,
    /// The trained part.
    pub train: String,
    /// Type of the packed weights under adapters, if they were packed.
    pub packed_base: Option<String>,
    /// Names of the classes, in the order of the scores; absent for a language model.
    pub classes: Option<Vec<String>>,
    /// Number of values of the model.
    pub parameters: usize,
    /// Number of values that were trained.
    pub trained_parameters: usize,
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
    /// Probability that a row or a user takes part in a step.
    pub sampling_probability: f64,
    /// Clipping threshold.
    pub max_grad_norm: f64,
    /// Precision of the forward and backward passes.
    pub precision: String,
    /// Number of steps.
    pub steps: usize,
    /// Expected size of a logical batch.
    pub expected_batch_size: usize,
    /// Number of rows or users to train on.
    pub units: usize,
    /// Numbers of rows to train on and to evaluate. With users as the unit, the first is private.
    pub rows: [Option<usize>; 2],
    /// Evaluation of the pre-trained model.
    pub before: Evaluation,
    /// Evaluation of the trained model.
    pub after: Evaluation,
    /// Exponential of the loss of a token.
    pub perplexity: Option<f64>,
    /// Generated texts.
    pub generated: Option<Generated>,
    /// The measurements.
    pub measurements: Vec<EpochRow>,
    /// Time of the steps without evaluations.
    pub train_seconds: f64,
    /// Expected rows or users per second in the last pass, only at the terminal.
    #[serde(skip)]
    pub units_per_second: f64,
    /// Largest memory of the process on the host, without the memory of a GPU; absent if the system
    /// does not report it.
    pub peak_memory_bytes: Option<u64>,
    /// Name of the optimizer.
    pub optimizer: String,
    /// Learning rate of the first step.
    pub lr: f64,
    /// Seed of new parameters and sampled texts.
    pub seed: u64,
    /// Known seed of sampling and noise; such a run is not private.
    pub insecure_seed: Option<u64>,
    /// Name of the backend.
    pub backend: String,
    /// Version of this crate.
    pub version: &'static str,
}

/// Texts that the trained model wrote.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Generated {
    /// Sampled texts; after their prompts, if these are from a public file.
    pub samples: Vec<String>,
    /// BLEU score of the most likely texts after the prompts of up to 32 rows of the evaluation.
    pub bleu: Option<f64>,
    /// How much the model prefers the canaries, if there are any.
    pub exposure: Option<Exposures>,
}

/// A measurement on the rows of the evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EpochRow {
    /// Passes over the data so far.
    pub epoch: f64,
    /// Steps so far.
    pub step: usize,
    /// Loss and accuracy.
    pub evaluation: Evaluation,
    /// Upper bound of ε so far; absent if no finite bound is guaranteed.
    pub epsilon: Option<f64>,
    /// Expected rows or users per second in this pass, only at the terminal.
    #[serde(skip)]
    pub units_per_second: f64,
}

/// Returns the columns of the table.
pub(super) fn columns() -> Vec<Column> {
    vec![
        ("epoch", 7, "passes over the data"),
        ("loss", 9, "mean cross entropy of a row or a token"),
        ("accuracy", 11, "share of correct predictions, rows of the evaluation"),
        EPSILON,
        ("units/s", 10, "expected rows (or users) per second"),
        ("seconds", 8, "time of the steps"),
        ("MiB", 6, "largest memory of the process on the host so far"),
    ]
}

impl EpochRow {
    /// Returns the cells of the table.
    pub(super) fn cells(&self, seconds: Duration) -> [String; 7] {
        [
            format!("{:.1}", self.epoch),
            format!("{:.4}", self.evaluation.loss),
            percent(self.evaluation.accuracy),
            self.epsilon.map_or("-".into(), upwards),
            significant(self.units_per_second, 3),
            format!("{:.0}", seconds.as_secs_f64()),
            peak_memory().map_or("-".into(), |bytes| (bytes >> 20).to_string()),
        ]
    }
}

impl Generated {
    /// Prints the texts.
    pub(super) fn print(&self) {
        for (index, sample) in self.samples.iter().enumerate() {
            burn_dp_examples::print_line!("sample {}: {sample}", index + 1);
        }
        if let Some(bleu) = self.bleu {
            burn_dp_examples::print_line!("BLEU: {}", percent(bleu));
        }
        if let Some(exposure) = &self.exposure {
            exposure.print();
        }
    }
}

impl FinetuneFigures {
    /// Returns the results in one line.
    pub(super) fn summary(&self) -> String {
        let mut text = format!(
            "loss {:.4} -> {:.4}, accuracy {} -> {}",
            self.before.loss,
            self.after.loss,
            percent(self.before.accuracy),
            percent(self.after.accuracy)
        );
        if let Some(perplexity) = self.perplexity {
            text += &format!(", perplexity {}", significant(perplexity, 4));
        }
        text += &match self.epsilon {
            Some(epsilon) => {
                format!(", epsilon <= {} at delta = {:e}", upwards(epsilon), self.delta)
            }
            None => ", NOT PRIVATE: no finite epsilon is guaranteed".into(),
        };
        text += &format!(", {} units/s", significant(self.units_per_second, 3));
        if let Some(bytes) = self.peak_memory_bytes {
            text += &format!(", {} MiB at most", bytes >> 20);
        }
        if !self.after.loss.is_finite() {
            text += "\nwarning: the training has diverged: the loss of the trained model is not \
                     finite, and the files of the model are of no use. The budget is spent. A \
                     smaller --lr may help";
        }
        text
    }
}

/// Returns the largest memory of this process on the host, or `None` if the system does not report
/// it.
pub(super) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}
