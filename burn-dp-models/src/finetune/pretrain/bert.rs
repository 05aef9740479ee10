//! BERT learns to predict tokens that are masked.

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_dp_examples::training::TrainError;
use chacha20::ChaCha8Rng;
use serde_json::{Value, json};
use tokenizers::decoders::wordpiece::WordPiece as Decoder;
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{AddedToken, TokenizerImpl};

use super::objective::{Objective, Prepared, below};
use crate::bert::BertMaskedLanguageModel;
use crate::finetune::options::PretrainOptions;
use crate::{ActivationFunction, BertConfig, ModelError, Sequence, Tokens};

/// Splits words in lower case into parts that occur often.
type WordPieces =
    TokenizerImpl<WordPiece, BertNormalizer, BertPreTokenizer, BertProcessing, Decoder>;

/// Tokens that are not parts of words; the id of each is its index.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const CLS: u32 = 2;
const SEP: u32 = 3;
const MASK: u32 = 4;

/// Share of the tokens that are predicted.
const PREDICTED: f64 = 0.15;

/// Of ten predicted tokens, this many are masked, and the next one is replaced at random.
const MASKED_OF_TEN: usize = 8;

/// The masked tokens of random texts.
///
/// # References
///
/// Devlin et al., BERT: pre-training of deep bidirectional transformers, 2019, section 3.1.
pub(super) struct MaskedTokens {
    texts: Vec<Vec<u32>>,
    positions: usize,
    batch_size: usize,
    vocabulary: usize,
    loss: CrossEntropyLoss,
}

/// A text with masked tokens.
#[derive(Debug, Clone, PartialEq)]
struct Masked {
    ids: Vec<u32>,
    /// The positions that are predicted, and their tokens.
    predicted: Vec<(usize, u32)>,
}

/// Creates tokenizer and model.
///
/// # Errors
///
/// Returns [`TrainError::Record`] if the texts cannot be tokenized.
pub(super) fn prepare(
    options: &PretrainOptions,
    texts: &[&str],
    device: &Device,
) -> Result<Prepared<MaskedTokens>, TrainError> {
    let failed = |error: tokenizers::Error| ModelError::new(&options.data, error);
    let tokenizer = tokenizer(texts, options.vocabulary_size).map_err(failed)?;
    let ids = |text: &&str| Ok(tokenizer.encode_fast(*text, false)?.get_ids().to_vec());
    let ids = texts.iter().map(ids).collect::<Result<Vec<_>, tokenizers::Error>>();
    let texts = ids.map_err(failed)?.into_iter().filter(|ids| !ids.is_empty());
    let texts: Vec<Vec<u32>> = texts.collect();
    if texts.is_empty() {
        let reason = format!("column `{}` has no text with a letter or a sign", options.text);
        return Err(ModelError::new(&options.data, reason).into());
    }
    let config = BertConfig {
        // Few texts have fewer parts of words.
        vocab_size: tokenizer.get_vocab_size(true),
        max_position_embeddings: options.positions,
        hidden_size: options.width,
        num_hidden_layers: options.layers,
        num_attention_heads: options.heads,
        intermediate_size: 4 * options.width,
        type_vocab_size: 2,
        hidden_act: ActivationFunction::Gelu,
        layer_norm_eps: 1e-12,
        pad_token_id: Some(0),
    };
    Ok(Prepared {
        model: BertMaskedLanguageModel::new(&config, device),
        tokenizer: tokenizer.to_string(true).map_err(failed)?,
        config: json(&config),
        tokens: texts.iter().map(Vec::len).sum(),
        objective: MaskedTokens {
            texts,
            positions: options.positions,
            batch_size: options.batch_size,
            vocabulary: config.vocab_size,
            loss: CrossEntropyLossConfig::new().init(device),
        },
    })
}

impl MaskedTokens {
    /// Returns a random text, or a part of a long one, with masked tokens.
    fn draw(&self, random: &mut ChaCha8Rng) -> Masked {
        let text = &self.texts[below(random, self.texts.len())];
        let length = text.len().min(self.positions - 2);
        let begin = below(random, text.len() - length + 1);
        let mut ids = [&[CLS], &text[begin..][..length], &[SEP]].concat();
        // Shuffled as far as needed.
        let mut places: Vec<usize> = (1..=length).collect();
        let count = ((PREDICTED * length as f64).round() as usize).max(1);
        let mut predicted = Vec::with_capacity(count);
        for index in 0..count {
            places.swap(index, index + below(random, length - index));
            let place = places[index];
            predicted.push((place, ids[place]));
            let kind = below(random, 10);
            if kind < MASKED_OF_TEN {
                ids[place] = MASK;
            } else if kind == MASKED_OF_TEN {
                let other = SPECIAL.len() + below(random, self.vocabulary - SPECIAL.len());
                ids[place] = other as u32;
            }
        }
        Masked { ids, predicted }
    }
}

impl Objective for MaskedTokens {
    type Model = BertMaskedLanguageModel;

    fn loss(
        &self,
        model: &BertMaskedLanguageModel,
        random: &mut ChaCha8Rng,
        device: &Device,
    ) -> Tensor<1> {
        let texts: Vec<Masked> = (0..self.batch_size).map(|_| self.draw(random)).collect();
        let given = |ids: &Vec<u32>| Sequence { ids: ids.clone(), given: ids.len() };
        let sequences: Vec<Sequence> = texts.iter().map(|text| given(&text.ids)).collect();
        let tokens = Tokens::new(&sequences.iter().collect::<Vec<_>>(), device);
        let [_, length] = tokens.ids.dims();
        let (mut places, mut targets) = (Vec::new(), Vec::new());
        for (row, text) in texts.iter().enumerate() {
            for (place, token) in &text.predicted {
                places.push((row * length + place) as i64);
                targets.push(i64::from(*token));
            }
        }
        let scores = model.forward(&tokens, integers(places, device));
        self.loss.forward(scores, integers(targets, device))
    }
}

fn integers(values: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// Returns a tokenizer with the special tokens of BERT.
fn tokenizer(texts: &[&str], size: usize) -> Result<WordPieces, tokenizers::Error> {
    let special = SPECIAL.map(|token| AddedToken::from(token, true)).to_vec();
    let mut trainer = WordPieceTrainer::builder()
        .show_progress(false)
        .vocab_size(size)
        .special_tokens(special)
        .build();
    let token = |id: u32| (SPECIAL[id as usize].to_string(), id);
    let mut tokenizer = WordPieces::new(WordPiece::default());
    tokenizer
        .with_normalizer(Some(BertNormalizer::default()))?
        .with_pre_tokenizer(Some(BertPreTokenizer))
        .with_post_processor(Some(BertProcessing::new(token(SEP), token(CLS))))
        .with_decoder(Some(Decoder::default()));
    tokenizer.train(&mut trainer, texts.iter())?;
    Ok(tokenizer)
}

/// Returns the configuration as `transformers` reads it.
fn json(config: &BertConfig) -> Value {
    json!({
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "type_vocab_size": config.type_vocab_size,
        "hidden_act": "gelu",
        "layer_norm_eps": config.layer_norm_eps,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": config.pad_token_id,
        "tie_word_embeddings": true,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;
    use rand_core::SeedableRng;

    use super::*;
    use crate::finetune::Finetune;

    fn masked(texts: Vec<Vec<u32>>, positions: usize) -> MaskedTokens {
        let loss = CrossEntropyLossConfig::new().init(&Device::flex());
        MaskedTokens { texts, positions, batch_size: 1, vocabulary: 1000, loss }
    }

    #[test]
    fn a_seventh_of_the_tokens_is_predicted_and_eight_tenths_of_them_masked() {
        let text: Vec<u32> = (0..100).map(|index| 100 + index).collect();
        let objective = masked(vec![text.clone()], 102);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mut as_mask, mut kept, mut other) = (0, 0, 0);
        for _ in 0..200 {
            let Masked { ids, predicted } = objective.draw(&mut random);
            assert_eq!((ids.len(), ids[0], ids[101], predicted.len()), (102, CLS, SEP, 15));
            for (place, token) in &predicted {
                assert_eq!(text[place - 1], *token);
                match ids[*place] {
                    MASK => as_mask += 1,
                    id if id == *token => kept += 1,
                    id => {
                        assert!((5..1000).contains(&id));
                        other += 1;
                    }
                }
            }
            let changed = (1..=100).filter(|place| ids[*place] != text[place - 1]);
            let places: Vec<usize> = predicted.iter().map(|(place, _)| *place).collect();
            assert!(changed.into_iter().all(|place| places.contains(&place)));
        }
        // Of 3000; five standard deviations are 110 and 82.
        assert!((2290..2510).contains(&as_mask), "{as_mask}");
        assert!((218..382).contains(&kept) && (218..382).contains(&other), "{kept} {other}");
    }

    #[test]
    fn a_long_text_is_cut_and_a_short_one_has_one_predicted_token() {
        let objective = masked(vec![(100..150).collect(), vec![7]], 12);
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let drawn: Vec<Masked> = (0..50).map(|_| objective.draw(&mut random)).collect();
        let of_length = |length| drawn.iter().filter(move |text| text.ids.len() == length);
        assert_eq!(of_length(12).count() + of_length(3).count(), 50);
        assert!(of_length(3).all(|text| text.predicted == [(1, 7)]));
        let firsts: std::collections::HashSet<_> = of_length(12).map(|text| text.ids[1]).collect();
        assert!(firsts.len() > 5, "{firsts:?}");
    }

    #[test]
    fn the_loss_of_masked_tokens_falls() {
        let sentence = |index: usize| {
            let (noun, word) = (["film", "book"][index % 2], ["good", "bad"][index / 2 % 2]);
            format!("the {noun} is {word} and the {noun} was not {word}")
        };
        let texts: Vec<String> = (0..8).map(sentence).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let line = "finetune pretrain --architecture bert --data none.csv --text text --layers 1 \
                    --width 16 --heads 2 --positions 16 --steps 150 --lr 0.01";
        let command = Finetune::try_parse_from(line.split_whitespace()).unwrap();
        let Finetune::Pretrain(options) = command else { panic!("another command") };
        let device = Device::flex().autodiff();
        device.seed(1);
        let Prepared { objective, model, .. } = prepare(&options, &texts, &device).unwrap();
        let loss = |model: &BertMaskedLanguageModel| {
            let mut random = ChaCha8Rng::seed_from_u64(99);
            objective.loss(model, &mut random, &device).into_scalar::<f64>()
        };
        let before = loss(&model);
        let after = loss(&options.train(&objective, model));
        // By chance, the logarithm of the number of tokens.
        assert!((before - (objective.vocabulary as f64).ln()).abs() < 0.3, "{before}");
        assert!(after < 1.0, "{after}");
    }
}
