//! GPT-2 learns to predict the next token.

use std::collections::HashSet;

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::{Device, Tensor};
use burn_dp_examples::training::TrainError;
use chacha20::ChaCha8Rng;
use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, NormalizerWrapper, TokenizerImpl};

use super::objective::{Objective, Prepared, below};
use super::options::PretrainOptions;
use crate::finetune::encoding::END_OF_TEXT;
use crate::{ActivationFunction, Gpt2Config, Gpt2LanguageModel, ModelError, Sequence, Tokens};

/// Splits texts into bytes that occur together often.
type Bpe = TokenizerImpl<BPE, NormalizerWrapper, ByteLevel, ByteLevel, ByteLevel>;

/// The next token in random parts of all texts.
pub(super) struct NextToken {
    /// The texts, each after a token for the end of a text.
    stream: Vec<u32>,
    positions: usize,
    batch_size: usize,
    loss: CrossEntropyLoss,
}

/// Creates tokenizer and model.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if the texts are too short, and [`TrainError::Record`] if they
/// cannot be tokenized.
pub(super) fn prepare(
    options: &PretrainOptions,
    texts: &[&str],
    device: &Device,
) -> Result<Prepared<NextToken>, TrainError> {
    let failed = |error: tokenizers::Error| ModelError::new(&options.data, error);
    let tokenizer = tokenizer(texts, options.vocabulary_size).map_err(failed)?;
    let config = Gpt2Config {
        // Few texts have fewer parts of words.
        vocab_size: tokenizer.get_vocab_size(true),
        n_positions: options.positions,
        n_embd: options.width,
        n_layer: options.layers,
        n_head: options.heads,
        n_inner: None,
        activation_function: ActivationFunction::GeluNew,
        layer_norm_epsilon: 1e-5,
        eos_token_id: Some(0),
    };
    let stream = stream(&tokenizer, texts).map_err(failed)?;
    if stream.len() <= options.positions {
        let reason = format!(
            "must be less than the {} tokens of the texts, got {}",
            stream.len(),
            options.positions
        );
        return Err(TrainError::option("--positions", reason));
    }
    Ok(Prepared {
        model: Gpt2LanguageModel::new(&config, device),
        tokenizer: tokenizer.to_string(true).map_err(failed)?,
        config: json(&config),
        tokens: stream.len(),
        objective: NextToken {
            stream,
            positions: options.positions,
            batch_size: options.batch_size,
            loss: CrossEntropyLossConfig::new().init(device),
        },
    })
}

impl Objective for NextToken {
    type Model = Gpt2LanguageModel;

    fn loss(
        &self,
        model: &Gpt2LanguageModel,
        random: &mut ChaCha8Rng,
        device: &Device,
    ) -> Tensor<1> {
        let mut part = || {
            let begins = below(random, self.stream.len() - self.positions);
            Sequence { ids: self.stream[begins..][..self.positions].to_vec(), given: 1 }
        };
        let parts: Vec<Sequence> = (0..self.batch_size).map(|_| part()).collect();
        let tokens = Tokens::new(&parts.iter().collect::<Vec<_>>(), device);
        let scores = model.forward(&tokens);
        let [rows, length, vocabulary] = scores.dims();
        // The last position has no next token.
        let scores = scores.narrow(1, 0, length - 1);
        let targets = tokens.next.narrow(1, 0, length - 1);
        let places = rows * (length - 1);
        self.loss.forward(scores.reshape([places, vocabulary]), targets.reshape([places]))
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
