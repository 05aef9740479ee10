//! Command-line options of the benchmarks.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::device_costs::DeviceCostsOptions;
use super::finetune::{FinetuneBenchOptions, StepperOptions};
use super::noise::NoiseOptions;
use super::peers::PeerOptions;
use super::planner::PlannerOptions;
use super::scaling::ScalingOptions;
use super::worker::WorkerOptions;
use super::{Algorithm, Network, Sizes};
use burn_dp_examples::training::BackendName;

/// Measure what privacy costs.
///
/// Two more are built on request: `cargo xtask bench learner` (a step in Burn's learner) and `cargo
/// xtask bench accountant`; each has its own `--help`.
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
    /// Steps of PyTorch, Opacus, JAX-Privacy and fastDP, alternating with ours, at the same sizes.
    Peers(PeerOptions),
    /// The planner's choices against the same choice for every layer, alternating.
    Planner(PlannerOptions),
    /// The costs of a device, by which training chooses how to compute norms.
    DeviceCosts(DeviceCostsOptions),
    /// Time and memory against batch, width, depth, sequence length and image size.
    Scaling(ScalingOptions),
    /// One step of the CNN in Burn's learner and in a custom loop, alternating.
    #[cfg(feature = "train")]
    Learner(LearnerOptions),
    /// One step of recurrent layers: Burn's layers, private layers without clipping, and with it.
    Recurrent(RecurrentOptions),
    /// The throughput of the noise, next to a pass over as many values.
    Noise(NoiseOptions),
    /// Private fine-tuning of a network with the shape of GPT-2 against ordinary fine-tuning.
    Finetune(FinetuneBenchOptions),
    /// Run steps of one way of fine-tuning on command; started by `finetune`.
    #[command(hide = true)]
    FinetuneWorker(StepperOptions),
    /// Run steps of one algorithm on command; started by the other benchmarks.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

/// Options of `bench step`.
#[derive(Args, Debug, Clone)]
pub struct StepOptions {
    /// Networks to train.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["mlp", "cnn"])]
    pub models: Vec<Network>,
    /// Batch sizes.
    #[arg(long, value_delimiter = ',', default_values = ["32", "128", "512"])]
    pub batch: Vec<usize>,
    /// Algorithms to compare; the ordinary step is always measured too.
    #[arg(long, value_enum, value_delimiter = ',', default_values =
        ["non-private", "book-keeping", "materialize", "reweight", "nxbp"])]
    pub algorithms: Vec<Algorithm>,
    /// Numbers of threads [default: one for each core].
    #[arg(long, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Pixels per side of the images of the ResNet and VGG networks; the others read 28.
    #[arg(long, value_name = "PIXELS", default_value_t = 32)]
    pub image_size: usize,
    /// Backend to run on.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// Maximum number of images that book-keeping has in memory at once [default: the batch].
    #[arg(long, value_name = "N")]
    pub physical_batch_size: Option<usize>,
    /// Measured seconds of each algorithm, in all blocks together; at least two steps in each.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Blocks of each algorithm.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub blocks: usize,
    /// File for the figures.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// File for a picture: the time of each private step relative to the ordinary step.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Measurements of other frameworks to draw next to it, one JSON object per line, in the format
    /// that the scripts in burn-dp-bench/peers print.
    #[arg(long, value_name = "FILE", requires = "svg")]
    pub peers: Option<PathBuf>,
}

impl StepOptions {
    /// Returns the sizes of the networks.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes { image_size: Some(self.image_size), ..Sizes::default() }
    }
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
        assert_eq!(options.models, [Network::Cnn]);
        assert_eq!(options.batch, [32, 128]);
        assert_eq!(options.algorithms, [Algorithm::Nxbp, Algorithm::BookKeeping]);
    }
}
