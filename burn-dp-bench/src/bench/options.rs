//! Command-line options of the benchmarks.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::Algorithm;
use burn_dp_examples::models::ModelName;
use burn_dp_examples::training::BackendName;

/// Measure what privacy costs.
///
/// `cargo xtask bench accountant` measures the accountant, with options of its own.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", version)]
pub struct BenchOptions {
    /// What to measure.
    #[command(subcommand)]
    pub benchmark: Benchmark,
}

/// What can be measured.
#[derive(Subcommand, Debug, Clone)]
pub enum Benchmark {
    /// One training step: forward, backward, clipping, noise and update.
    Step(StepOptions),
    /// One step of the CNN in Burn's learner and in a custom loop, in turns.
    #[cfg(feature = "train")]
    Learner(LearnerOptions),
    /// One step of recurrent layers: Burn's layers, private layers without clipping, and with it.
    Recurrent(RecurrentOptions),
    /// Peak memory of one algorithm in this process, in MiB; started by `step`.
    #[command(hide = true)]
    Peak(PeakOptions),
}

/// Options of `bench step`.
#[derive(Args, Debug, Clone)]
pub struct StepOptions {
    /// Networks to train.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["mlp", "cnn"])]
    pub models: Vec<ModelName>,
    /// Batch sizes.
    #[arg(long, value_delimiter = ',', default_values = ["32", "128", "512"])]
    pub batch: Vec<usize>,
    /// Algorithms to compare; the ordinary step is always measured too.
    #[arg(long, value_enum, value_delimiter = ',', default_values =
        ["non-private", "book-keeping", "materialize", "reweight", "nxbp"])]
    pub algorithms: Vec<Algorithm>,
    /// Pixels per side of the images of the ResNet and VGG networks; the others read 28.
    #[arg(long, value_name = "PIXELS", default_value_t = 32)]
    pub image_size: usize,
    /// Backend to run on.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// Measured steps of each algorithm; nxbp makes a fifth of them.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub repetitions: usize,
    /// File for the figures.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// File for a picture: the time of each private step over the ordinary step.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Measurements of other frameworks to draw next to it, one JSON object per line, as the
    /// scripts in burn-dp-bench/peers print them.
    #[arg(long, value_name = "FILE", requires = "svg")]
    pub peers: Option<PathBuf>,
}

/// Options of `bench learner`.
#[cfg(feature = "train")]
#[derive(Args, Debug, Clone)]
pub struct LearnerOptions {
    /// Images in a step.
    #[arg(long, default_value_t = 128)]
    pub batch: usize,
    /// Steps of a run.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub steps: usize,
    /// Measured runs of each loop.
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub repetitions: usize,
    /// Backend to run on.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// File for the figures.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Options of `bench recurrent`.
#[derive(Args, Debug, Clone)]
pub struct RecurrentOptions {
    /// Sequences in a step.
    #[arg(long, default_value_t = 128)]
    pub batch: usize,
    /// Measured steps of each variant; the medians are printed.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub repetitions: usize,
    /// Backend to run on.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
}

/// Options of `bench peak`.
#[derive(Args, Debug, Clone)]
pub struct PeakOptions {
    /// Network to train.
    #[arg(long, value_enum)]
    pub model: ModelName,
    /// Batch size.
    #[arg(long)]
    pub batch: usize,
    /// Pixels per side of an image, for the networks that take any size.
    #[arg(long)]
    pub image_size: usize,
    /// Algorithm to run.
    #[arg(long, value_enum)]
    pub algorithm: Algorithm,
    /// Steps to make; from the second step on the state of the optimizer is in memory too.
    #[arg(long, default_value_t = 3)]
    pub steps: usize,
    /// Backend to run on.
    #[arg(long, value_enum)]
    pub backend: BackendName,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        BenchOptions::command().debug_assert();
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let line = "bench step --models cnn --batch 32,128 --algorithms nxbp,book-keeping";
        let options = BenchOptions::try_parse_from(line.split(' ')).unwrap();
        let Benchmark::Step(options) = options.benchmark else { panic!("not `step`") };
        assert_eq!(options.models, [ModelName::Cnn]);
        assert_eq!(options.batch, [32, 128]);
        assert_eq!(options.algorithms, [Algorithm::Nxbp, Algorithm::BookKeeping]);
    }
}
