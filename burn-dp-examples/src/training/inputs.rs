//! Options of what a network reads: images of a size, or texts of a length.

use std::path::PathBuf;

use clap::Args;

use super::TrainError;
use super::options::{DatasetName, typed};
use crate::models::{ModelName, NormName};

/// Options that belong to some data sets or networks only.
#[derive(Args, Debug, Clone, Default)]
pub struct InputOptions {
    /// folder: pixels on a side to which images are scaled [default: 64].
    #[arg(long, value_name = "PIXELS")]
    pub image_size: Option<usize>,
    /// imdb: number of words of a review that are read, from its beginning [default: 128].
    #[arg(long, value_name = "WORDS")]
    pub sequence_length: Option<usize>,
    /// imdb: number of buckets into which words are hashed, or of word vectors that are read from
    /// --word-vectors [default: 10000].
    #[arg(long, value_name = "N")]
    pub vocabulary_size: Option<usize>,
    /// imdb: file of public word vectors (GloVe, word2vec or fastText, as text), which stay as they are
    /// [default: vectors are trained from scratch].
    #[arg(long, value_name = "FILE")]
    pub word_vectors: Option<PathBuf>,
    /// resnet: how channels are normalised [default: group].
    #[arg(long, value_enum)]
    pub norm: Option<NormName>,
}

/// Checked settings of what a network reads.
#[derive(Debug, Clone, PartialEq)]
pub struct InputSettings {
    /// Pixels on a side of an image in a folder.
    pub image_size: usize,
    /// Number of words of a text that are read.
    pub sequence_length: usize,
    /// Number of words that are told apart.
    pub vocabulary_size: usize,
    /// File of word vectors.
    pub word_vectors: Option<PathBuf>,
    /// Normalisation of a residual network.
    pub norm: NormName,
}

impl InputSettings {
    /// Checks the options against the data set and the network, and against one another.
    ///
    /// # Errors
    ///
    /// For an option that the data set or the network does not have, a number that is impossible, and a
    /// network that cannot read the data set.
    pub(super) fn new(
        options: InputOptions,
        dataset: DatasetName,
        model: ModelName,
    ) -> Result<Self, TrainError> {
        let texts = dataset == DatasetName::Imdb;
        if texts && model.sequence().is_none() {
            let reason = format!(
                "{} reads images, and {} holds texts; give rnn, lstm or transformer",
                typed(model),
                typed(dataset)
            );
            return Err(TrainError::option("--model", reason));
        }
        let of_images = options.image_size.map(|size| size.to_string());
        let of_texts = [
            ("--sequence-length", options.sequence_length.map(|length| length.to_string())),
            ("--vocabulary-size", options.vocabulary_size.map(|size| size.to_string())),
            ("--word-vectors", options.word_vectors.as_ref().map(|p| p.display().to_string())),
        ];
        let given = [("--image-size", of_images)].into_iter().chain(of_texts);
        for (name, value) in given {
            let owner =
                if name == "--image-size" { DatasetName::Folder } else { DatasetName::Imdb };
            match value {
                Some(value) if dataset != owner => {
                    let (owner, dataset) = (typed(owner), typed(dataset));
                    let reason =
                        format!("{value} is for the data set {owner}, not {dataset}; leave it out");
                    return Err(TrainError::option(name, reason));
                }
                _ => {}
            }
        }
        if let (Some(norm), false) = (options.norm, model.is_normalised()) {
            let (norm, model) = (typed(norm), typed(model));
            let reason =
                format!("{norm} is for the resnets, {model} has no such layer; leave it out");
            return Err(TrainError::option("--norm", reason));
        }
        let image_size = at_least("--image-size", options.image_size, 64, model.smallest_side())?;
        Ok(Self {
            image_size,
            sequence_length: at_least("--sequence-length", options.sequence_length, 128, 1)?,
            vocabulary_size: at_least("--vocabulary-size", options.vocabulary_size, 10_000, 1)?,
            word_vectors: options.word_vectors,
            norm: options.norm.unwrap_or(NormName::Group),
        })
    }

    /// What a resumed run must share, by option.
    pub(super) fn compared(&self) -> [(&'static str, String); 5] {
        let vectors = self.word_vectors.as_ref().map(|path| path.display().to_string());
        [
            ("--image-size", self.image_size.to_string()),
            ("--sequence-length", self.sequence_length.to_string()),
            ("--vocabulary-size", self.vocabulary_size.to_string()),
            ("--word-vectors", vectors.unwrap_or_else(|| "not given".into())),
            ("--norm", typed(self.norm)),
        ]
    }
}

fn at_least(
    name: &'static str,
    value: Option<usize>,
    default: usize,
    smallest: usize,
) -> Result<usize, TrainError> {
    match value {
        Some(value) if value < smallest => {
            let reason =
                format!("must be at least {smallest}, got {value}; leave it out for the default");
            Err(TrainError::option(name, reason))
        }
        // The sides are numbers of 16 bits in many formats, and so are lengths in the bound of memory.
        Some(value) if value > u16::MAX as usize && name != "--vocabulary-size" => {
            let reason = format!("must be at most {}, got {value}", u16::MAX);
            Err(TrainError::option(name, reason))
        }
        Some(value) if value > i32::MAX as usize / 2 => {
            let reason = format!("must be at most {}, got {value}", i32::MAX / 2);
            Err(TrainError::option(name, reason))
        }
        value => Ok(value.unwrap_or(default)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;
    use crate::training::{Settings, TrainOptions};

    fn settings(line: &str) -> Result<InputSettings, TrainError> {
        let words = std::iter::once("train").chain(line.split_whitespace());
        let options = TrainOptions::try_parse_from(words).unwrap();
        Settings::new(options, Some("data".into())).map(|settings| settings.inputs)
    }

    fn error(line: &str) -> String {
        settings(line).unwrap_err().to_string()
    }

    #[test]
    fn options_of_another_data_set_are_refused_by_name() {
        for (line, expected) in [
            ("mnist --image-size 64", "--image-size 64 is for the data set folder, not mnist"),
            ("digits --sequence-length 9", "--sequence-length 9 is for the data set imdb"),
            ("cifar10 --vocabulary-size 9", "--vocabulary-size 9 is for the data set imdb"),
            (
                "folder --word-vectors glove.txt",
                "--word-vectors glove.txt is for the data set imdb",
            ),
            ("mnist --model vgg11 --norm group", "--norm group is for the resnets, vgg11 has no"),
        ] {
            assert!(error(line).contains(expected), "{}", error(line));
        }
    }

    #[test]
    fn a_network_of_images_does_not_read_texts() {
        for model in ["cnn", "mlp", "resnet18", "vgg11"] {
            let text = error(&format!("imdb --model {model}"));
            let expected = format!("--model {model} reads images, and imdb holds texts; give rnn");
            assert!(text.contains(&expected), "{text}");
        }
        assert!(settings("imdb --model rnn").is_ok() && settings("imdb").is_ok());
    }

    #[test]
    fn numbers_that_are_impossible_are_refused_by_name() {
        for (line, expected) in [
            ("folder --image-size 8", "--image-size must be at least 16, got 8"),
            ("folder --image-size 0 --model mlp", "--image-size must be at least 1, got 0"),
            ("folder --image-size 70000", "--image-size must be at most 65535, got 70000"),
            ("imdb --sequence-length 0", "--sequence-length must be at least 1, got 0"),
            ("imdb --vocabulary-size 0", "--vocabulary-size must be at least 1, got 0"),
            ("imdb --vocabulary-size 9999999999", "--vocabulary-size must be at most"),
        ] {
            assert!(error(line).contains(expected), "{}", error(line));
        }
    }

    #[test]
    fn what_is_given_is_used() {
        let line = "imdb --sequence-length 9 --vocabulary-size 70000 --word-vectors glove.txt";
        let given = settings(line).unwrap();
        assert_eq!((given.sequence_length, given.vocabulary_size), (9, 70_000));
        assert_eq!(given.word_vectors, Some("glove.txt".into()));
        let given =
            settings("folder --model resnet18 --norm frozen-batch --image-size 24").unwrap();
        assert_eq!((given.norm, given.image_size), (NormName::FrozenBatch, 24));
    }
}
