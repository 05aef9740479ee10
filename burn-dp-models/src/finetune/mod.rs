//! The program `finetune`: options, data, training, evaluation, and output.
//!
//! A run trains one task: the whole classifier, the head on cached features, or the
//! language model; the training is the same for all of them.

mod base;
mod bleu;
mod canaries;
mod check;
mod classify;
mod data;
mod encoding;
mod export;
mod figures;
mod finish;
mod generate;
mod halves;
mod images;
mod options;
mod packing;
mod pretrain;
mod probe;
mod read;
mod split;
mod task;
mod training;
mod units;
mod ways;
mod writer;

pub use canaries::{Exposure, Exposures, Written};
pub use figures::{EpochRow, FinetuneFigures, Generated};
pub use halves::{HalvedColumns, write_halves};
pub use options::{
    CanaryOptions, CheckOptions, ExposureOptions, Finetune, FinetuneOptions, Images, Labels, Loss,
    Packing, Prompts, Texts, TrainingOptions, Way,
};
pub use pretrain::{Architecture, PretrainOptions};

use burn_dp_examples::training::TrainError;

/// Runs a command. Returns the figures of private training.
///
/// # Errors
///
/// Returns [`TrainError`] if an option is impossible, a file cannot be read, or the training
/// fails.
pub fn run(command: Finetune) -> Result<Option<FinetuneFigures>, TrainError> {
    match command {
        Finetune::Classify { options, texts, labels } => {
            classify::run(&options, &texts, &labels).map(Some)
        }
        Finetune::Generate { options, texts, prompts, canaries } => {
            generate::run(&options, &texts, &prompts, &canaries).map(Some)
        }
        Finetune::Images { options, images } => images::run(&options, &images).map(Some),
        Finetune::Pretrain(options) => pretrain::run(&options).map(|()| None),
        Finetune::Exposure(options) => canaries::run(&options).map(|()| None),
        Finetune::Check(options) => check::run(&options).map(|()| None),
    }
}
