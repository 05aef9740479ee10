//! Converts texts to tokens.

use std::path::Path;

use burn_dp_examples::training::TrainError;
use tokenizers::{PostProcessor, Tokenizer, TruncationParams};

use crate::{Config, ModelError, Sequence};

/// Name of the file in the folder of a model.
pub(super) const FILE: &str = "tokenizer.json";

/// Token that ends a text of GPT-2, where the configuration names none.
pub(super) const END_OF_TEXT: &str = "<|endoftext|>";

/// Longest text in tokens, if neither the options nor the model set a smaller limit.
const MAX_LENGTH: usize = 128;

/// A tokenizer, and the limits of a model.
pub(super) struct Encoding {
    tokenizer: Tokenizer,
    max_length: usize,
    vocab_size: usize,
    /// The token that begins and ends a generated text.
    end: Option<u32>,
    folder: std::path::PathBuf,
}

impl Encoding {
    /// Reads the tokenizer of a model.
    ///
    /// # Arguments
    ///
    /// - `max_length`: longest text in tokens; without it, [`MAX_LENGTH`] or the positions of the
    ///   model, whichever is smaller
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if the file is missing or damaged, and [`TrainError::Option`]
    /// if the model has fewer positions than `max_length`.
    pub(super) fn read(
        folder: &Path,
        config: &Config,
        max_length: impl Into<Option<usize>>,
    ) -> Result<Self, TrainError> {
        let longest = config.max_length();
        let max_length = max_length.into().unwrap_or(longest.min(MAX_LENGTH));
        if max_length < 2 || max_length > longest {
            let reason = format!("must be between 2 and the {longest} positions of the model");
            return Err(TrainError::option("--max-length", format!("{reason}, got {max_length}")));
        }
        let path = folder.join(FILE);
        let failed = |error: tokenizers::Error| TrainError::from(ModelError::new(&path, error));
        if !path.is_file() {
            let reason = format!(
                "has no {FILE}; older checkpoints have only a vocabulary: create the file with \
                 `AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)` of transformers"
            );
            return Err(ModelError::new(folder, reason).into());
        }
        let mut tokenizer = Tokenizer::from_file(&path).map_err(failed)?;
        let special = tokenizer.get_post_processor().map_or(0, |added| added.added_tokens(false));
        if max_length <= special {
            let reason =
                format!("must be greater than the {special} special tokens, got {max_length}");
            return Err(TrainError::option("--max-length", reason));
        }
        let truncation = TruncationParams { max_length, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(failed)?;
        // Batches are padded by the model.
        tokenizer.with_padding(None);
        let end = match config {
            Config::Gpt2(config) => config.eos_token_id,
            _ => None,
        };
        let vocab_size = config.vocab_size();
        let end = end.filter(|id| (*id as usize) < vocab_size);
        let fallback = tokenizer.token_to_id(END_OF_TEXT);
        let end = end.or(fallback.filter(|id| (*id as usize) < vocab_size));
        Ok(Self { tokenizer, max_length, vocab_size, end, folder: folder.into() })
    }

    /// Returns a text with the special tokens of the model, for a classifier.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if the model lacks a token or the text has none.
    pub(super) fn text(&self, text: &str) -> Result<Sequence, TrainError> {
        let ids = self.ids(text, true)?;
        if ids.is_empty() {
            return Err(self.error("produces no tokens for the text"));
        }
        let given = ids.len();
        Ok(Sequence { ids, given })
    }

    /// Returns a prompt and a text between two tokens for the end of a text. All tokens after the
    /// prompt are predicted.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if the model lacks a token.
    pub(super) fn generated(&self, prompt: &str, text: &str) -> Result<Sequence, TrainError> {
        let mut sequence = self.prompt(prompt)?;
        sequence.ids.extend(self.ids(text, false)?);
        sequence.ids.extend(self.end);
        sequence.ids.truncate(self.max_length);
        Ok(sequence)
    }

    /// Returns a prompt after a token for the end of a text.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if the model lacks a token.
    pub(super) fn prompt(&self, prompt: &str) -> Result<Sequence, TrainError> {
        let Some(end) = self.end else {
            return Err(self.error("needs a token for the end of a text; set `eos_token_id`"));
        };
        let mut ids = vec![end];
        ids.extend(self.ids(prompt, false)?);
        ids.truncate(self.max_length);
        let given = ids.len();
        Ok(Sequence { ids, given })
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>, TrainError> {
        let encoding = self.tokenizer.encode_fast(text, special);
        let ids = encoding.map_err(|error| self.error(error))?.get_ids().to_vec();
        if ids.iter().all(|id| (*id as usize) < self.vocab_size) {
            return Ok(ids);
        }
        // The first one that the model lacks: the tokens of the text are private.
        let vocabulary = self.tokenizer.get_vocab(true).into_iter();
        let lacking = vocabulary.filter(|(_, id)| *id as usize >= self.vocab_size);
        let (token, id) = lacking.min_by_key(|(_, id)| *id).unwrap_or_default();
        let size = self.vocab_size;
        let reason =
            format!("has the token `{token}` with id {id}, but the model has {size} tokens");
        Err(self.error(reason))
    }

    /// Returns the text of tokens, without special ones.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        let text = self.tokenizer.decode(ids, true).unwrap_or_default();
        text.trim().to_string()
    }

    /// Returns the token that ends a text.
    pub(super) fn end(&self) -> Option<u32> {
        self.end
    }

    /// Returns the longest text in tokens.
    pub(super) fn max_length(&self) -> usize {
        self.max_length
    }

    fn error(&self, reason: impl std::fmt::Display) -> TrainError {
        ModelError::new(self.folder.join(FILE), reason).into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn golden(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
    }

    fn encoding(name: &str, max_length: usize) -> Encoding {
        let folder = golden(name);
        Encoding::read(&folder, &Config::read(&folder).unwrap(), max_length).unwrap()
    }

    #[test]
    fn a_long_text_is_cut_off_and_keeps_its_special_tokens() {
        let text = "the film is good and the book is bad";
        let ids = |length| encoding("bert-classify", length).text(text).unwrap().ids;
        let (all, few) = (ids(14), ids(5));
        assert_eq!((all.len(), few.len()), (11, 5));
        assert_eq!((all[0], all[10], few[4]), (2, 3, 3));
        assert_eq!(few[..4], all[..4]);
    }

    #[test]
    fn the_default_length_is_at_most_the_positions_of_the_model() {
        let folder = golden("gpt2-generate");
        let Config::Gpt2(config) = Config::read(&folder).unwrap() else { panic!("no GPT-2") };
        for (n_positions, expected) in [(12, 12), (128, 128), (1024, 128)] {
            let config = Config::Gpt2(crate::Gpt2Config { n_positions, ..config.clone() });
            let encoding = Encoding::read(&folder, &config, None::<usize>).unwrap();
            assert_eq!(encoding.max_length(), expected);
        }
    }

    #[test]
    fn a_generated_text_is_between_two_ends_and_after_its_prompt() {
        let encoding = encoding("gpt2-generate", 7);
        let sequence = encoding.generated("a film", "is good").unwrap();
        assert_eq!(sequence.given, 3);
        assert_eq!((sequence.ids.len(), sequence.ids[0], sequence.ids[5]), (6, 0, 0));
        assert_eq!(encoding.decode(&sequence.ids[3..]), "is good");
        let long = encoding.generated("a film is very good and the", "book").unwrap();
        // The prompt leaves no room for the text, which then has no loss.
        assert_eq!((long.ids.len(), long.given), (7, 7));
    }

    #[test]
    fn an_error_does_not_repeat_the_text() {
        let error = encoding("gpt2-classify", 8).text("\t\t").unwrap_err().to_string();
        assert!(error.contains("no tokens") && !error.contains("\\t"), "{error}");
    }

    #[test]
    fn a_token_that_the_model_lacks_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config.json", FILE] {
            std::fs::copy(golden("gpt2-classify").join(name), folder.path().join(name)).unwrap();
        }
        let path = folder.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("\"good\": 10,", "\"good\": 45,");
        std::fs::write(&path, text.replace("\"bad\": 11,", "\"bad\": 46,")).unwrap();
        let config = Config::read(folder.path()).unwrap();
        let encoding = Encoding::read(folder.path(), &config, 8).unwrap();
        assert!(encoding.text("the film").is_ok());
        // The text that has the token is private.
        for text in ["is good", "is bad"] {
            let error = encoding.text(text).unwrap_err().to_string();
            assert!(error.contains("`good` with id 45, but the model has 40 tokens"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = Encoding::read(folder.path(), &config, 8).err().unwrap().to_string();
        assert!(error.contains("has no tokenizer.json") && error.contains("save_pre"), "{error}");
        let error = Encoding::read(folder.path(), &config, 99).err().unwrap().to_string();
        assert!(error.contains("12 positions") && error.contains("--max-length"), "{error}");
    }
}
