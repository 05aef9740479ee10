//! Ordinary training of a small model and its tokenizer on public texts.

mod bert;
mod gpt2;
mod objective;
mod options;

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Device;
use burn_dp_examples::training::place::{self, CONFIG, PRETRAINED, Program};
use burn_dp_examples::training::progress::{Column, Progress, significant};
use burn_dp_examples::training::{TrainError, checks, files};
use chacha20::ChaCha8Rng;
use objective::{Objective, Prepared};
pub use options::{Architecture, PretrainOptions};
use rand_core::SeedableRng;

use super::data::{self, Columns};
use super::encoding::FILE;
use crate::ModelError;
use crate::weights::{tensors, to_safetensors};

/// Fraction of the steps in which the learning rate grows to its value.
const WARM_UP: f64 = 0.05;

/// Steps between two rows of the table.
const SHOWN: usize = 100;

/// Trains tokenizer and model, and writes the folder that the other commands read.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if a number is impossible, and [`TrainError::Io`] or
/// [`TrainError::Record`] if a file cannot be read or written.
pub(super) fn run(options: &PretrainOptions) -> Result<(), TrainError> {
    options.check()?;
    checks::folder("--output", &options.output)?;
    let written = [WEIGHTS, FILE, CONFIG].map(|name| options.output.join(name));
    place::check(Program::Pretrain, &options.output, written)?;
    let columns = Columns { text: &options.text, ..Columns::default() };
    let rows = data::read(&options.data, columns)?.1;
    let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
    let device = Device::flex().autodiff();
    device.seed(options.seed);
    match options.architecture {
        Architecture::Gpt2 => options.run(&texts, gpt2::prepare(options, &texts, &device)?),
        Architecture::Bert => options.run(&texts, bert::prepare(options, &texts, &device)?),
    }
}

const WEIGHTS: &str = "model.safetensors";

impl PretrainOptions {
    fn check(&self) -> Result<(), TrainError> {
        checks::at_least_one([
            ("--layers", self.layers),
            ("--heads", self.heads),
            ("--width", self.width),
            ("--batch-size", self.batch_size),
        ])?;
        checks::positive([("--lr", self.lr)])?;
        if let Some(share) = self.predicted_share {
            if self.architecture != Architecture::Bert {
                let reason = "must be left out without --architecture bert";
                return Err(TrainError::option("--predicted-share", reason));
            }
            if !(share > 0.0 && share < 1.0) {
                let reason = format!("must be between 0 and 1, got {share}");
                return Err(TrainError::option("--predicted-share", reason));
            }
        }
        if !self.width.is_multiple_of(self.heads) {
            let reason =
                format!("must be a multiple of the {} heads, got {}", self.heads, self.width);
            return Err(TrainError::option("--width", reason));
        }
        // A token and the next one; or a token between two special ones.
        let least = if self.architecture == Architecture::Gpt2 { 2 } else { 3 };
        if self.positions < least {
            let reason = format!("must be at least {least}, got {}", self.positions);
            return Err(TrainError::option("--positions", reason));
        }
        // The bytes and the end of a text.
        if self.vocabulary_size < 257 {
            let reason = format!("must be at least 257, got {}", self.vocabulary_size);
            return Err(TrainError::option("--vocabulary-size", reason));
        }
        Ok(())
    }

    /// Trains, and writes the files.
    fn run<O: Objective>(&self, texts: &[&str], prepared: Prepared<O>) -> Result<(), TrainError> {
        let Prepared { objective, model, tokenizer, mut config, tokens } = prepared;
        burn_dp_examples::print_line!(
            "{} texts, {tokens} tokens; {} of {} parameters. Not private: for public texts.",
            texts.len(),
            config["architectures"][0].as_str().unwrap_or_default(),
            model.num_params()
        );
        config[PRETRAINED] = concat!("burn-dp-models ", env!("CARGO_PKG_VERSION")).into();
        let model = self.train(&objective, model);
        files::make_folder(&self.output)?;
        let at = |name: &str| self.output.join(name);
        let weights = to_safetensors(&tensors(&model));
        let weights = weights.map_err(|reason| ModelError::new(at(WEIGHTS), reason))?;
        // First, because it marks the folder.
        files::write_json(&at(CONFIG), &config)?;
        files::write(&at(WEIGHTS), &weights)?;
        files::write_text(&at(FILE), &tokenizer)?;
        burn_dp_examples::print_line!("model: {}", self.output.display());
        Ok(())
    }

    /// Trains with Adam, and a learning rate that falls linearly to zero.
    fn train<O: Objective>(&self, objective: &O, mut model: O::Model) -> O::Model {
        let device = Device::flex().autodiff();
        let mut optimizer = AdamConfig::new().init();
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let columns: Vec<Column> =
            vec![("step", 7, "steps so far"), ("loss", 9, "mean cross entropy of a token")];
        let mut progress = Progress::start(0, self.steps, ("100 steps", SHOWN), columns);
        let rises = (WARM_UP * self.steps as f64).max(1.0);
        let mut sum = 0.0;
        for step in 0..self.steps {
            let mean = objective.loss(&model, &mut random, &device);
            sum += mean.clone().into_scalar::<f64>();
            let gradients = GradientsParams::from_grads(mean.backward(), &model);
            let left = 1.0 - step as f64 / self.steps as f64;
            let lr = self.lr * left * ((step + 1) as f64 / rises).min(1.0);
            model = optimizer.step(lr, model, gradients);
            progress.step(step + 1);
            if (step + 1).is_multiple_of(SHOWN) || step + 1 == self.steps {
                let count = (step % SHOWN + 1) as f64;
                progress.row([(step + 1).to_string(), significant(sum / count, 4)]);
                sum = 0.0;
            }
        }
        progress.finish();
        model
    }
}
