use std::path::PathBuf;

use burn_dp_examples::training::BackendName;
use clap::Args;

use super::system::System;
use crate::bench::networks::Network;

/// Options of `bench peers`.
#[derive(Args, Debug, Clone)]
pub struct PeerOptions {
    /// Networks to train; gru, vgg11 and gpt2-block are possible too.
    #[arg(long, value_enum, value_delimiter = ',', default_values =
        ["mlp", "cnn", "rnn", "lstm", "transformer-block", "resnet18-cifar"])]
    pub models: Vec<Network>,
    /// Batch sizes [default: 128, 32 for resnet18-cifar and vgg11, 8 for gpt2-block].
    #[arg(long, value_delimiter = ',')]
    pub batch: Vec<usize>,
    /// Numbers of threads [default: one for each core].
    #[arg(long, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Systems to compare; systems that are not installed are skipped.
    #[arg(long, value_enum, value_delimiter = ',', default_values =
        ["burn-dp", "burn", "torch", "opacus", "jax-privacy", "fastdp"])]
    pub systems: Vec<System>,
    /// Backend to run on; with `cuda`, PyTorch, Opacus, JAX and fastDP run on the GPU too.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// Python with the other frameworks [default: the interpreter of the virtual environment]; with
    /// --install, the Python that creates the environment.
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,
    /// Create a virtual environment and install PyTorch, Opacus, JAX-Privacy and fastDP there, from
    /// PyPI and GitHub.
    #[arg(long)]
    pub install: bool,
    /// Folder of the virtual environment [default: `peers` in the target folder].
    #[arg(long, value_name = "DIR")]
    pub venv: Option<PathBuf>,
    /// Measured seconds of each step, in all blocks together.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Blocks of each step.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub blocks: usize,
    /// File for the figures.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// File for a picture: the time of each step relative to the ordinary step of PyTorch.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
