//! BERT learns to predict tokens that are masked, and which parts belong together.

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
use super::options::PretrainOptions;
use crate::bert::BertPreTraining;
use crate::{ActivationFunction, BertConfig, ModelError, Sequence, Tokens};

/// Splits words in lower case into parts that occur often.
type WordPieces =
    TokenizerImpl<WordPiece, BertNormalizer, BertPreTokenizer, BertProcessing, Decoder>;

/// Tokens that are not parts of words; the id of each is its index.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const CLS: u32 = 2;
const SEP: u32 = 3;
const MASK: u32 = 4;

/// Share of the tokens that are predicted, unless the user chooses another one.
pub(super) const PREDICTED: f64 = 0.15;

/// Of ten predicted tokens, this many are masked, and the next one is replaced at random.
const MASKED_OF_TEN: usize = 8;

/// The masked tokens of random texts, and pairs of their parts.
///
/// # References
///
/// Devlin et al., BERT: pre-training of deep bidirectional transformers, 2019, section 3.1.
pub(super) struct MaskedTokens {
    texts: Vec<Vec<u32>>,
    positions: usize,
    batch_size: usize,
    predicted: f64,
    vocabulary: usize,
    loss: CrossEntropyLoss,
}

/// A text with masked tokens.
#[derive(Debug, Clone, PartialEq)]
struct Masked {
    ids: Vec<u32>,
    /// The positions that are predicted, and their tokens.
    predicted: Vec<(usize, u32)>,
    /// Whether the second part is of another text.
    is_other: bool,
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
        model: BertPreTraining::new(&config, device),
        tokenizer: tokenizer.to_string(true).map_err(failed)?,
        config: json(&config),
        tokens: texts.iter().map(Vec::len).sum(),
        objective: MaskedTokens {
            texts,
            positions: options.positions,
            batch_size: options.batch_size,
            predicted: options.predicted_share.unwrap_or(PREDICTED),
            vocabulary: config.vocab_size,
            loss: CrossEntropyLossConfig::new().init(device),
        },
    })
}

impl MaskedTokens {
    /// Returns two parts with masked tokens: of one random text, or of two.
    fn draw(&self, random: &mut ChaCha8Rng) -> Masked {
        let index = below(random, self.texts.len());
        let text = &self.texts[index];
        // With one text, or one token, there is no other part.
        let has_two = text.len() > 1 && self.positions > 4;
        let room = self.positions - if has_two { 3 } else { 2 };
        let part = window(text, room, random);
        let (first, second) = part.split_at(if has_two { part.len() / 2 } else { part.len() });
        let is_other = has_two && self.texts.len() > 1 && below(random, 2) == 1;
        let other = (index + 1 + below(random, self.texts.len() - 1)) % self.texts.len();
        let second = match is_other {
            true => window(&self.texts[other], second.len(), random),
            false => second,
        };
        let mut ids = [&[CLS], first, &[SEP]].concat();
        if !second.is_empty() {
            ids.extend(second.iter().chain(&[SEP]));
        }
        let mut places: Vec<usize> =
            (0..ids.len()).filter(|place| ![CLS, SEP].contains(&ids[*place])).collect();
        // Shuffled as far as needed.
        let length = places.len();
        let count = ((self.predicted * length as f64).round() as usize).max(1);
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
        Masked { ids, predicted, is_other }
    }
}

/// Returns a random part of a text, of this length or shorter.
fn window<'a>(text: &'a [u32], length: usize, random: &mut ChaCha8Rng) -> &'a [u32] {
    let length = text.len().min(length);
    let begin = below(random, text.len() - length + 1);
    &text[begin..][..length]
}

impl Objective for MaskedTokens {
    type Model = BertPreTraining;

    fn loss(&self, model: &BertPreTraining, random: &mut ChaCha8Rng, device: &Device) -> Tensor<1> {
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
        let others = texts.iter().map(|text| i64::from(text.is_other)).collect();
        let (scores, pairs) = model.forward(&tokens, integers(places, device));
        self.loss.forward(scores, integers(targets, device))
            + self.loss.forward(pairs, integers(others, device))
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
        "architectures": ["BertForPreTraining"],
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
        MaskedTokens {
            texts,
            positions,
            batch_size: 1,
            predicted: PREDICTED,
            vocabulary: 1000,
            loss,
        }
    }

    #[test]
    fn a_seventh_of_the_tokens_is_predicted_and_eight_tenths_of_them_masked() {
        // Two parts of one text, between special tokens.
        let text: Vec<u32> = (0..99).map(|index| 100 + index).collect();
        let whole = [&[CLS], &text[..49], &[SEP], &text[49..], &[SEP]].concat();
        let objective = masked(vec![text], 102);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mut as_mask, mut kept, mut other) = (0, 0, 0);
        for _ in 0..200 {
            let Masked { ids, predicted, is_other } = objective.draw(&mut random);
            assert_eq!((ids.len(), predicted.len(), is_other), (102, 15, false));
            for (place, token) in &predicted {
                assert_eq!(whole[*place], *token);
                match ids[*place] {
                    MASK => as_mask += 1,
                    id if id == *token => kept += 1,
                    id => {
                        assert!((5..1000).contains(&id));
                        other += 1;
                    }
                }
            }
            let changed = (0..102).filter(|place| ids[*place] != whole[*place]);
            let places: Vec<usize> = predicted.iter().map(|(place, _)| *place).collect();
            assert!(changed.into_iter().all(|place| places.contains(&place)));
        }
        // Of 3000; five standard deviations are 110 and 82.
        assert!((2290..2510).contains(&as_mask), "{as_mask}");
        assert!((218..382).contains(&kept) && (218..382).contains(&other), "{kept} {other}");
    }

    #[test]
    fn the_share_of_predicted_tokens_is_the_chosen_one() {
        let objective = MaskedTokens { predicted: 0.4, ..masked(vec![(100..199).collect()], 102) };
        let Masked { predicted, .. } = objective.draw(&mut ChaCha8Rng::seed_from_u64(5));
        assert_eq!(predicted.len(), 40);
    }

    #[test]
    fn a_long_text_is_cut_and_a_short_one_has_one_predicted_token() {
        let objective = masked(vec![(100..150).collect(), vec![7]], 12);
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let drawn: Vec<Masked> = (0..50).map(|_| objective.draw(&mut random)).collect();
        let of_length = |length| drawn.iter().filter(move |text| text.ids.len() == length);
        // The second part of a long text, or the short one.
        assert_eq!([12, 8, 3].map(|length| of_length(length).count()).iter().sum::<usize>(), 50);
        assert!(of_length(8).all(|text| text.is_other) && of_length(12).all(|text| !text.is_other));
        assert!(of_length(3).all(|text| text.predicted == [(1, 7)]));
        let firsts: std::collections::HashSet<_> = of_length(12).map(|text| text.ids[1]).collect();
        assert!(firsts.len() > 5, "{firsts:?}");
    }

    #[test]
    fn half_of_the_pairs_are_of_two_texts() {
        let texts = (0..4).map(|text| vec![100 + text; 20]).collect();
        let objective = masked(texts, 16);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let drawn: Vec<Masked> = (0..400).map(|_| objective.draw(&mut random)).collect();
        for Masked { ids, predicted, is_other } in &drawn {
            let mut ids = ids.clone();
            predicted.iter().for_each(|(place, token)| ids[*place] = *token);
            assert_eq!((ids.len(), ids[0], ids[7], ids[15]), (16, CLS, SEP, SEP));
            assert_eq!(ids[1] != ids[8], *is_other, "{ids:?}");
        }
        // Five standard deviations.
        let others = drawn.iter().filter(|pair| pair.is_other).count();
        assert!((150..250).contains(&others), "{others}");
    }

    #[test]
    fn the_loss_of_masked_tokens_and_pairs_falls() {
        let sentence = |index: usize| {
            let (noun, word) = (["film", "book"][index % 2], ["good", "bad"][index / 2 % 2]);
            format!("the {noun} is {word} and the {noun} was not {word}")
        };
        let texts: Vec<String> = (0..8).map(sentence).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let line = "finetune pretrain --architecture bert --data none.csv --text text --layers 1 \
                    --width 16 --heads 2 --positions 16 --steps 400 --lr 0.01";
        let command = Finetune::try_parse_from(line.split_whitespace()).unwrap();
        let Finetune::Pretrain(options) = command else { panic!("another command") };
        let device = Device::flex().autodiff();
        device.seed(1);
        let Prepared { objective, model, .. } = prepare(&options, &texts, &device).unwrap();
        let loss = |model: &BertPreTraining| {
            let mut random = ChaCha8Rng::seed_from_u64(99);
            objective.loss(model, &mut random, &device).into_scalar::<f64>()
        };
        let before = loss(&model);
        let after = loss(&options.train(&objective, model));
        // By chance, the logarithms of the number of tokens, and of two.
        assert!((before - (2.0 * objective.vocabulary as f64).ln()).abs() < 0.3, "{before}");
        assert!(after < 1.0, "{after}");
    }
}
