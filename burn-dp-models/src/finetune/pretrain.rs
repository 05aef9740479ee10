//! Ordinary training of a small GPT-2 and its tokenizer on public texts.

use std::collections::HashSet;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Tensor};
use burn_dp_examples::training::progress::{Column, Progress, significant};
use burn_dp_examples::training::{TrainError, checks, files};
use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, NormalizerWrapper, TokenizerImpl};

use super::data::{self, Columns};
use super::encoding::{END_OF_TEXT, FILE};
use super::options::PretrainOptions;
use crate::weights::{tensors, to_safetensors};
use crate::{ActivationFunction, Gpt2Config, Gpt2LanguageModel, ModelError, Sequence, Tokens};

/// Share of the steps in which the learning rate grows to its value.
const WARM_UP: f64 = 0.05;

/// Steps between two rows of the table.
const SHOWN: usize = 100;

/// Splits texts into bytes that occur together often.
type Bpe = TokenizerImpl<BPE, NormalizerWrapper, ByteLevel, ByteLevel, ByteLevel>;

/// Trains tokenizer and model, and writes the folder that the other commands read.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if a number is impossible, and [`TrainError::Io`] or
/// [`TrainError::Record`] if a file cannot be read or written.
pub(super) fn run(options: &PretrainOptions) -> Result<(), TrainError> {
    let wanted = options.config()?;
    checks::folder("--output", &options.output)?;
    let columns = Columns { text: &options.text, ..Columns::default() };
    let rows = data::read(&options.data, columns)?.1;
    let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
    let failed = |error: tokenizers::Error| ModelError::new(&options.data, error);
    let tokenizer = tokenizer(&texts, options.vocabulary_size).map_err(failed)?;
    // Few texts have fewer parts of words.
    let config = Gpt2Config { vocab_size: tokenizer.get_vocab_size(true), ..wanted };
    let stream = stream(&tokenizer, &texts).map_err(failed)?;
    if stream.len() <= options.positions {
        let reason = format!(
            "must be less than the {} tokens of the texts, got {}",
            stream.len(),
            options.positions
        );
        return Err(TrainError::option("--positions", reason));
    }
    let device = Device::flex();
    device.seed(options.seed);
    let model = Gpt2LanguageModel::new(&config, &device.autodiff());
    println!(
        "{} texts, {} tokens; GPT-2 of {} parameters. Not private: for public texts.",
        texts.len(),
        stream.len(),
        model.num_params()
    );
    let model = options.train(model, &stream)?;
    files::make_folder(&options.output)?;
    let at = |name: &str| options.output.join(name);
    let weights = to_safetensors(&tensors(&model));
    let weights = weights.map_err(|reason| ModelError::new(at("model.safetensors"), reason))?;
    files::write(&at("model.safetensors"), &weights)?;
    files::write_text(&at(FILE), &tokenizer.to_string(true).map_err(failed)?)?;
    files::write_json(&at("config.json"), &json(&config))?;
    println!("model: {}", options.output.display());
    Ok(())
}

impl PretrainOptions {
    /// Checks the options.
    fn config(&self) -> Result<Gpt2Config, TrainError> {
        checks::at_least_one([
            ("--layers", self.layers),
            ("--heads", self.heads),
            ("--width", self.width),
            ("--batch-size", self.batch_size),
        ])?;
        checks::positive([("--lr", self.lr)])?;
        if !self.width.is_multiple_of(self.heads) {
            let reason =
                format!("must be a multiple of the {} heads, got {}", self.heads, self.width);
            return Err(TrainError::option("--width", reason));
        }
        if self.positions < 2 {
            let reason = format!("must be at least 2, got {}", self.positions);
            return Err(TrainError::option("--positions", reason));
        }
        // The bytes and the end of a text.
        if self.vocabulary_size < 257 {
            let reason = format!("must be at least 257, got {}", self.vocabulary_size);
            return Err(TrainError::option("--vocabulary-size", reason));
        }
        Ok(Gpt2Config {
            vocab_size: self.vocabulary_size,
            n_positions: self.positions,
            n_embd: self.width,
            n_layer: self.layers,
            n_head: self.heads,
            n_inner: None,
            activation_function: ActivationFunction::GeluNew,
            layer_norm_epsilon: 1e-5,
            eos_token_id: Some(0),
        })
    }

    /// Trains on random parts of the stream, with a learning rate that falls linearly to zero.
    fn train(
        &self,
        mut model: Gpt2LanguageModel,
        stream: &[u32],
    ) -> Result<Gpt2LanguageModel, TrainError> {
        let device = Device::flex().autodiff();
        let loss = CrossEntropyLossConfig::new().init(&device);
        let mut optimizer = AdamConfig::new().init();
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let columns: Vec<Column> =
            vec![("step", 7, "steps so far"), ("loss", 9, "mean cross entropy of a token")];
        let mut progress = Progress::start(0, self.steps, ("100 steps", SHOWN), columns);
        let rises = (WARM_UP * self.steps as f64).max(1.0);
        let mut sum = 0.0;
        for step in 0..self.steps {
            let mut part = || {
                let begins = random.next_u64() % (stream.len() - self.positions) as u64;
                let ids = stream[begins as usize..][..self.positions].to_vec();
                Sequence { ids, given: 1 }
            };
            let parts: Vec<Sequence> = (0..self.batch_size).map(|_| part()).collect();
            let tokens = Tokens::new(&parts.iter().collect::<Vec<_>>(), &device);
            let scores = model.forward(&tokens);
            let [rows, length, vocabulary] = scores.dims();
            // The last position has no next token.
            let scores = scores.narrow(1, 0, length - 1);
            let targets = tokens.next.narrow(1, 0, length - 1);
            let places = rows * (length - 1);
            let mean: Tensor<1> =
                loss.forward(scores.reshape([places, vocabulary]), targets.reshape([places]));
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
        Ok(model)
    }
}

/// Returns a tokenizer whose token 0 ends a text.
fn tokenizer(texts: &[&str], size: usize) -> Result<Bpe, tokenizers::Error> {
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(size)
        .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect::<HashSet<char>>())
        .build();
    let bytes = ByteLevel::default().add_prefix_space(false);
    let mut tokenizer = Bpe::new(BPE::default());
    tokenizer
        .with_pre_tokenizer(Some(bytes))
        .with_post_processor(Some(bytes))
        .with_decoder(Some(bytes));
    tokenizer.train(&mut trainer, texts.iter())?;
    Ok(tokenizer)
}

/// Returns the tokens of all texts, each after a token for the end of a text.
fn stream(tokenizer: &Bpe, texts: &[&str]) -> Result<Vec<u32>, tokenizers::Error> {
    let mut stream = Vec::new();
    for text in texts {
        stream.push(0);
        stream.extend(tokenizer.encode_fast(*text, false)?.get_ids());
    }
    Ok(stream)
}

/// Returns the configuration as `transformers` reads it.
fn json(config: &Gpt2Config) -> Value {
    json!({
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_positions": config.n_positions,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "bos_token_id": config.eos_token_id,
        "eos_token_id": config.eos_token_id,
        "tie_word_embeddings": true,
    })
}
