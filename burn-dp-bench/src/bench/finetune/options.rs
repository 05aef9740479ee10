use std::path::PathBuf;

use burn_dp_examples::training::BackendName;
use clap::Args;

use super::model::{FinetuneWay, Shape};

/// Options of `bench finetune`.
#[derive(Args, Debug, Clone)]
pub struct FinetuneBenchOptions {
    /// Ways to fine-tune.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["full", "lora", "bias"])]
    pub ways: Vec<FinetuneWay>,
    /// Shape of the network.
    #[command(flatten)]
    pub shape: Shape,
    /// Sequences in a step.
    #[arg(long, default_value_t = 4)]
    pub batch: usize,
    /// Number of threads [default: one for each core].
    #[arg(long)]
    pub threads: Option<usize>,
    /// Backend to run on.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// Measured steps of each system, in blocks of two.
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub repetitions: usize,
    /// Recompute cheap operations in the backward pass instead of keeping their results, in our
    /// steps.
    #[arg(long)]
    pub checkpointing: bool,
    /// Python with PyTorch and Opacus, which are measured too.
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,
    /// File for the figures.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Options of `bench finetune-worker`.
#[derive(Args, Debug, Clone)]
pub struct StepperOptions {
    /// What is trained.
    #[arg(long, value_enum)]
    pub way: FinetuneWay,
    /// Whether the steps are private.
    #[arg(long)]
    pub private: bool,
    /// Whether cheap operations are recomputed in the backward pass.
    #[arg(long)]
    pub checkpointing: bool,
    /// Shape of the network.
    #[command(flatten)]
    pub shape: Shape,
    /// Sequences in a step.
    #[arg(long)]
    pub batch: usize,
    /// Backend to run on.
    #[arg(long, value_enum)]
    pub backend: BackendName,
}
