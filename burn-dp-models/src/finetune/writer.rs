//! Writing of texts by a language model.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Distribution, Tensor};
use burn_dp_examples::training::TrainError;

use super::encoding::Encoding;
use crate::{Gpt2LanguageModel, Tokens};

/// Maximum number of texts of a run, which are kept in memory.
pub(super) const MOST_TEXTS: usize = 1_000_000;

/// A model without differentiation that writes texts.
pub(super) struct Writer<'a> {
    pub(super) model: Gpt2LanguageModel,
    pub(super) encoding: &'a Encoding,
    pub(super) device: Device,
}

impl Writer<'_> {
    /// Returns the text after a prompt.
    pub(super) fn text(
        &self,
        prompt: &str,
        length: usize,
        temperature: f64,
    ) -> Result<String, TrainError> {
        Ok(self.texts(prompt, 1, length, temperature)?.remove(0))
    }

    /// Returns several texts after one prompt, each of at most `length` tokens.
    pub(super) fn texts(
        &self,
        prompt: &str,
        count: usize,
        length: usize,
        temperature: f64,
    ) -> Result<Vec<String>, TrainError> {
        let prompt = self.encoding.prompt(prompt)?;
        let begin = prompt.ids.len();
        let end = self.encoding.max_length().min(begin.saturating_add(length));
        let mut sequences = vec![prompt; count];
        let mut lengths = vec![None; count];
        for position in begin..end {
            let tokens = Tokens::new(&sequences.iter().collect::<Vec<_>>(), &self.device);
            let ids = self.next(self.model.next(&tokens), temperature);
            for ((sequence, length), id) in sequences.iter_mut().zip(&mut lengths).zip(ids) {
                sequence.ids.push(id);
                if Some(id) == self.encoding.end() {
                    length.get_or_insert(position);
                }
            }
            if lengths.iter().all(Option::is_some) {
                break;
            }
        }
        let texts = sequences.iter().zip(lengths).map(|(sequence, length)| {
            let ids = &sequence.ids[..length.unwrap_or(sequence.ids.len())];
            self.encoding.decode(&ids[begin..])
        });
        Ok(texts.collect())
    }

    /// Draws a token for each row of the scores `[rows, vocabulary]`.
    fn next(&self, scores: Tensor<2>, temperature: f64) -> Vec<u32> {
        let [rows, vocabulary] = scores.dims();
        if temperature <= 0.0 {
            return scores.argmax(1).into_data().iter::<i64>().map(|id| id as u32).collect();
        }
        let shares = softmax(scores.div_scalar(temperature), 1).into_data();
        let shares = shares.iter::<f64>().collect::<Vec<_>>();
        let uniform = Distribution::Uniform(0.0, 1.0);
        let draws = Tensor::<1>::random([rows], uniform, &self.device).into_data();
        let of_row = |(shares, mut left): (&[f64], f64)| {
            let drawn = shares.iter().position(|share| {
                left -= share;
                left < 0.0
            });
            drawn.unwrap_or(vocabulary.saturating_sub(1)) as u32
        };
        shares.chunks(vocabulary.max(1)).zip(draws.iter::<f64>()).map(of_row).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::finetune::read::language_model;

    #[test]
    fn a_text_of_any_length_ends_at_the_positions_of_the_model() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gpt2-generate");
        let device = Device::flex();
        let (config, model) = language_model(&folder, &device).unwrap();
        let encoding = Encoding::read(&folder, &config, config.max_length()).unwrap();
        let writer = Writer { model, encoding: &encoding, device };
        let texts = |length| writer.texts("the film", 2, length, 0.0).unwrap();
        assert_eq!(texts(0), ["", ""]);
        assert_eq!(texts(usize::MAX), texts(config.max_length()));
    }
}
