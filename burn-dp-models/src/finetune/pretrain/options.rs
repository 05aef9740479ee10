//! Command-line options of the training on public texts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A model that is trained on public texts.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// A decoder that learns to predict the next token.
    Gpt2,
    /// An encoder that learns to predict masked tokens, for classifiers.
    Bert,
}

/// Options of the training on public texts.
#[derive(Args, Debug, Clone)]
pub struct PretrainOptions {
    /// File with public texts, one row each: .csv with a header line, or .jsonl, plain or gzip.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Column of the text.
    #[arg(long, value_name = "COLUMN")]
    pub text: String,
    /// What is trained.
    #[arg(long, value_enum, default_value_t = Architecture::Gpt2)]
    pub architecture: Architecture,
    /// Maximum vocabulary size.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub vocabulary_size: usize,
    /// Number of blocks.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub layers: usize,
    /// Width.
    #[arg(long, value_name = "N", default_value_t = 96)]
    pub width: usize,
    /// Attention heads of a block.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub heads: usize,
    /// Maximum length of a sequence in tokens.
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub positions: usize,
    /// Number of training steps; 0 saves the tokenizer and randomly initialized weights.
    #[arg(long, value_name = "N", default_value_t = 1500)]
    pub steps: usize,
    /// Sequences of a step.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub batch_size: usize,
    /// Share of the tokens that BERT predicts [default: 0.15].
    #[arg(long, value_name = "SHARE")]
    pub predicted_share: Option<f64>,
    /// Learning rate of Adam; it grows for a twentieth of the steps and falls linearly to zero.
    #[arg(long, default_value_t = 0.002)]
    pub lr: f64,
    /// Seed of the weights and of the order of the texts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Folder for config.json, tokenizer.json and model.safetensors: the value of --model of the
    /// other commands.
    #[arg(long, value_name = "DIR", default_value = "out/pretrain")]
    pub output: PathBuf,
}
