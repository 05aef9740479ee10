//! Options for the input of a network: images of a given size, or texts of a given length.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::models::{ModelName, NormName};
use crate::training::TrainError;
use crate::training::augmentation::{Augmentation, AugmentationOptions};
use crate::training::options::{DatasetName, as_typed, headings, typed};

/// Options that belong only to some data sets or networks.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = headings::CLASSIFIERS)]
pub struct InputOptions {
    /// folder: pixels per side to which images are scaled [default: 64].
    #[arg(long, value_name = "PIXELS")]
    pub image_size: Option<usize>,
    /// Images: train on their scattering features, from wavelets without parameters, instead of
    /// their pixels. They are computed once; an image of 28 pixels has 3969, in 16 KB.
    #[arg(long)]
    pub scattering: bool,
    /// imdb: number of words of a review that are read, from its start [default: 128].
    #[arg(long, value_name = "WORDS")]
    pub sequence_length: Option<usize>,
    /// imdb: number of buckets into which words are hashed, or of word vectors that are read from
    /// --word-vectors [default: 10000].
    #[arg(long, value_name = "N")]
    pub vocabulary_size: Option<usize>,
    /// imdb: file of public word vectors (GloVe, word2vec or fastText, as text), which are not
    /// trained [default: vectors are trained from scratch].
    #[arg(long, value_name = "FILE")]
    pub word_vectors: Option<PathBuf>,
    /// resnet: how channels are normalized [default: group].
    #[arg(long, value_enum)]
    pub norm: Option<NormName>,
}

/// Checked settings of the input of a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InputSettings {
    /// Pixels per side of an image in a folder.
    pub image_size: usize,
    /// Whether the network reads scattering features.
    pub scattering: bool,
    /// Number of words of a text that are read.
    pub sequence_length: usize,
    /// Number of distinct words.
    pub vocabulary_size: usize,
    /// File of word vectors.
    pub word_vectors: Option<PathBuf>,
    /// Random copies of each image.
    #[serde(flatten)]
    pub augmentation: Option<Augmentation>,
    /// Normalization of a residual network.
    #[serde(serialize_with = "as_typed")]
    pub norm: NormName,
}

impl InputSettings {
    /// Checks the options against the data set and the network.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option of another data set or network, an impossible
    /// number, and a network that cannot read the data set.
    pub(super) fn new(
        options: InputOptions,
        augmentation: &AugmentationOptions,
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
        if options.scattering && (texts || model.smallest_side() > 1) {
            let (model, dataset) = (typed(model), typed(dataset));
            let reason = if texts {
                format!("is for images, and {dataset} holds texts; leave it out")
            } else {
                format!("gives maps that are too small for {model}; give --model linear or mlp")
            };
            return Err(TrainError::option("--scattering", reason));
        }
        if let (Some(norm), false) = (options.norm, model.is_normalized()) {
            let (norm, model) = (typed(norm), typed(model));
            let reason =
                format!("{norm} is for the resnets, {model} has no such layer; leave it out");
            return Err(TrainError::option("--norm", reason));
        }
        let read = match options.scattering {
            true => Some("scattering features"),
            false => texts.then_some("texts"),
        };
        let augmentation = Augmentation::new(augmentation, read)?;
        let image_size = at_least("--image-size", options.image_size, 64, model.smallest_side())?;
        Ok(Self {
            image_size,
            scattering: options.scattering,
            sequence_length: at_least("--sequence-length", options.sequence_length, 128, 1)?,
            vocabulary_size: at_least("--vocabulary-size", options.vocabulary_size, 10_000, 1)?,
            word_vectors: options.word_vectors,
            augmentation,
            norm: options.norm.unwrap_or(NormName::Group),
        })
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
        // Sides are 16-bit numbers in many formats; lengths have the same bound, to limit memory.
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

    use super::*;
    use crate::training::TrainOptions;
    use crate::training::individual::IndividualSettings;

    fn settings(line: &str) -> Result<InputSettings, TrainError> {
        let words = std::iter::once("train").chain(line.split_whitespace());
        let options = TrainOptions::read(words).unwrap();
        IndividualSettings::new(options, Some("data".into())).map(|settings| settings.inputs)
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
            ("mnist --mirror", "--mirror has no meaning without --augmentation; leave it out"),
            ("imdb --augmentation 2", "--augmentation moves images, and the network reads texts"),
            ("mnist --scattering --augmentation 2", "the network reads scattering features"),
            ("mnist --model lenet5", "--model lenet5 is for --clipping batch; leave it out, or"),
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
    fn scattering_is_for_images_and_networks_of_small_maps() {
        assert!(error("imdb --scattering --model rnn").contains("is for images, and imdb holds"));
        let text = error("mnist --scattering --model cnn");
        assert!(text.contains("--scattering gives maps that are too small for cnn"), "{text}");
        assert!(settings("mnist --scattering").unwrap().scattering);
        assert!(settings("mnist --scattering --model mlp").is_ok());
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
    fn given_values_are_used() {
        let line = "imdb --sequence-length 9 --vocabulary-size 70000 --word-vectors glove.txt";
        let given = settings(line).unwrap();
        assert_eq!((given.sequence_length, given.vocabulary_size), (9, 70_000));
        assert_eq!(given.word_vectors, Some("glove.txt".into()));
        let given =
            settings("folder --model resnet18 --norm frozen-batch --image-size 24").unwrap();
        assert_eq!((given.norm, given.image_size), (NormName::FrozenBatch, 24));
    }
}
