//! The program `finetune`: options, data, training, evaluation and what it writes.
//!
//! A run trains one task: the whole classifier, the head on cached features, or the
//! language model; the training is the same for all of them.

mod bleu;
mod check;
mod classify;
mod data;
mod encoding;
mod export;
mod figures;
mod finish;
mod generate;
mod images;
mod options;
mod split;
mod task;
mod training;
mod units;
mod ways;

pub use figures::{Evaluation, FinetuneFigures, Generated, Row};
pub use options::{Finetune, FinetuneOptions, Labels, Loss, Prompts, Recipe, Texts, Way};

use burn_dp_examples::training::TrainError;

impl Finetune {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError`] if an option is impossible, a file cannot be read, or the training
    /// fails.
    pub fn run(self) -> Result<(), TrainError> {
        match self {
            Self::Classify { options, texts, labels } => {
                classify::run(&options, &texts, &labels).map(|_| ())
            }
            Self::Generate { options, texts, prompts } => {
                generate::run(&options, &texts, &prompts).map(|_| ())
            }
            Self::Images { options, images } => images::run(&options, &images).map(|_| ()),
            Self::Check(options) => check::run(&options),
        }
    }
}
