//! The data set that the options name.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::options::{DatasetName, as_typed, as_typed_option, headings, typed};
use super::statement::first_of_files;
use super::{TrainError, checks};
use crate::data::{
    ImageBatcher, Splits, TextBatcher, Vocabulary, WordVectors, cifar10, digits, folder, imdb,
    mnist,
};

/// The data and its location.
#[derive(Args, Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Data")]
pub struct DataOptions {
    /// Data set to train on.
    #[arg(value_enum, default_value_t = DatasetName::Digits, help_heading = None)]
    #[serde(rename = "the data set", serialize_with = "as_typed")]
    pub dataset: DatasetName,
    /// Folder with the files of the data set, as published: IDX files, plain or gzip (mnist,
    /// fashion-mnist), the binary version (cifar10), aclImdb (imdb), train/CLASS/*.png and
    /// test/CLASS (folder), shakespeare-users.jsonl, plain or gzip (shakespeare); the synthetic
    /// digits need none [default: the variable BURN_DP_DATA].
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub data_dir: Option<PathBuf>,
    /// mnist: read the files from the cache of burn-dataset, which downloads them the first time;
    /// needs the feature `download`. The default for mnist without a folder.
    #[arg(long, conflicts_with = "data_dir", help_heading = headings::EXAMPLES)]
    #[serde(skip)]
    pub download: bool,
    /// Use only this many examples to train on, the first ones of the files; the guarantee is then
    /// for these, and the statement says so [default: all; 12000 synthetic digits].
    #[arg(long, value_name = "N", help_heading = headings::EXAMPLES)]
    pub train_size: Option<usize>,
    /// Use only this many examples to test on [default: all; 2000 synthetic digits].
    #[arg(long, value_name = "N", help_heading = headings::EXAMPLES)]
    #[serde(skip)]
    pub test_size: Option<usize>,
    /// Data set of the public examples, where a clipping policy or BatchNorm needs them: different
    /// from the training data [default: for synthetic digits, separate synthetic digits].
    #[arg(long, value_enum, value_name = "DATASET", help_heading = headings::THRESHOLDS)]
    #[serde(serialize_with = "as_typed_option")]
    pub public_data: Option<DatasetName>,
    /// Folder with the files of the public data set; synthetic digits need none.
    #[arg(long, value_name = "DIR", help_heading = headings::THRESHOLDS)]
    #[serde(skip)]
    pub public_dir: Option<PathBuf>,
    /// Use only this many public examples [default: 1000].
    #[arg(long, value_name = "N", help_heading = headings::THRESHOLDS)]
    pub public_size: Option<usize>,
    /// Seed of the initial weights, of the synthetic digits, and of the membership in mini-sets.
    /// Noise and sampling never use it: the operating system seeds them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

impl DataOptions {
    /// Checks the options, and finds the folder of the files.
    ///
    /// # Arguments
    ///
    /// - `environment`: the folder where the options name none
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a size of zero, for a folder or a download that the data
    /// set does not need, and for a folder that is missing.
    pub(super) fn checked(mut self, environment: Option<PathBuf>) -> Result<Self, TrainError> {
        checks::at_least_one([
            ("--train-size", self.train_size.unwrap_or(1)),
            ("--test-size", self.test_size.unwrap_or(1)),
            ("--public-size", self.public_size.unwrap_or(1)),
        ])?;
        if self.download && self.dataset != DatasetName::Mnist {
            let reason = format!("is for mnist, not {}; leave it out", typed(self.dataset));
            return Err(TrainError::option("--download", reason));
        }
        if self.public_dataset() == Some(DatasetName::Digits) {
            checks::drawable_public(self.public_size)?;
        }
        if self.dataset == DatasetName::Digits {
            checks::drawable(self.train_size, self.test_size)?;
            if let Some(folder) = &self.data_dir {
                let reason = format!(
                    "{} is given but the synthetic digits need no files; leave it out, or train \
                     mnist",
                    folder.display()
                );
                return Err(TrainError::option("--data-dir", reason));
            }
            return Ok(self);
        }
        self.data_dir = self.data_dir.or(environment).filter(|_| !self.download);
        if self.data_dir.is_none() && self.dataset != DatasetName::Mnist {
            let reason = format!(
                "must be given for {}, or BURN_DP_DATA be set: the folder with its files",
                typed(self.dataset)
            );
            return Err(TrainError::option("--data-dir", reason));
        }
        Ok(self)
    }

    /// Returns the data set of the public examples.
    pub(super) fn public_dataset(&self) -> Option<DatasetName> {
        let drawn = (self.dataset == DatasetName::Digits).then_some(DatasetName::Digits);
        self.public_data.or(drawn)
    }

    /// Returns what ε does not cover of a part of the files; `None` if all examples are trained on,
    /// or drawn ones.
    pub(super) fn not_covered(&self) -> Option<String> {
        let size = self.train_size.filter(|_| self.dataset != DatasetName::Digits)?;
        Some(first_of_files("--train-size", size, "examples"))
    }

    /// Returns the folder that the variable `BURN_DP_DATA` names.
    pub fn environment() -> Option<PathBuf> {
        std::env::var_os("BURN_DP_DATA").filter(|folder| !folder.is_empty()).map(Into::into)
    }

    /// Reads images, or makes synthetic ones.
    ///
    /// # Arguments
    ///
    /// - `side`: pixels per side to which images of a folder are scaled
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Data`] if the files cannot be read, and [`TrainError::Option`] if the
    /// data set holds no images.
    pub(super) fn images(&self, side: usize) -> Result<Splits<ImageBatcher>, TrainError> {
        let splits = match (self.dataset, &self.data_dir) {
            (DatasetName::Digits, _) => digits::splits(
                self.seed,
                self.train_size.unwrap_or(digits::TRAIN_ITEMS),
                self.test_size.unwrap_or(digits::TEST_ITEMS),
            ),
            (DatasetName::Mnist, Some(path)) => mnist::from_folder(path)?,
            (DatasetName::FashionMnist, Some(path)) => mnist::fashion_from_folder(path)?,
            (DatasetName::Cifar10, Some(path)) => cifar10::read(path)?,
            (DatasetName::Folder, Some(path)) => folder::read(path, side)?,
            (DatasetName::Mnist, None) => mnist::downloaded()?,
            (dataset, _) => {
                let reason = format!("must be a data set of images, got {}", typed(dataset));
                return Err(TrainError::option("DATASET", reason));
            }
        };
        Ok(self.cut(splits))
    }

    /// Reads film reviews, and the word vectors if there is a file of them.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Data`] if the files cannot be read, and [`TrainError::Option`] if
    /// there is no folder.
    pub(super) fn reviews(
        &self,
        vocabulary_size: usize,
        length: usize,
        word_vectors: Option<&PathBuf>,
    ) -> Result<Reviews, TrainError> {
        let folder = self.data_dir.as_ref().ok_or_else(|| {
            TrainError::option("--data-dir", "must be given: the folder with the film reviews")
        })?;
        let vectors = word_vectors.map(|file| WordVectors::read(file, vocabulary_size));
        let vectors = vectors.transpose()?;
        let hashed = Vocabulary::Hashed { buckets: vocabulary_size as u32 };
        let vocabulary = vectors.as_ref().map_or(&hashed, |vectors| &vectors.vocabulary);
        Ok((self.cut(imdb::read(folder, vocabulary, length)?), vectors))
    }

    fn cut<E: crate::data::Encoder>(&self, splits: Splits<E>) -> Splits<E> {
        let size = |size: Option<usize>| size.unwrap_or(usize::MAX);
        splits.truncated(size(self.train_size), size(self.test_size))
    }
}

/// The data sets of consecutive training runs.
#[derive(Default)]
pub(super) struct Loaded {
    keeps: bool,
    images: Option<(String, Splits<ImageBatcher>)>,
    reviews: Option<(String, Reviews)>,
}

type Reviews = (Splits<TextBatcher>, Option<WordVectors>);

impl Loaded {
    /// Returns a cache that keeps the last data set of each kind, so that the next training run
    /// with the same options does not read it again. The default keeps nothing.
    pub(super) fn kept() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    /// Returns [`DataOptions::images`].
    pub(super) fn images(
        &mut self,
        options: &DataOptions,
        side: usize,
    ) -> Result<Splits<ImageBatcher>, TrainError> {
        let key = format!("{options:?} {side}");
        recalled(self.keeps, &mut self.images, key, || options.images(side))
    }

    /// Returns [`DataOptions::reviews`].
    pub(super) fn reviews(
        &mut self,
        options: &DataOptions,
        vocabulary_size: usize,
        length: usize,
        word_vectors: Option<&PathBuf>,
    ) -> Result<Reviews, TrainError> {
        let key = format!("{options:?} {vocabulary_size} {length} {word_vectors:?}");
        let read = || options.reviews(vocabulary_size, length, word_vectors);
        recalled(self.keeps, &mut self.reviews, key, read)
    }
}

/// Returns the cached value for the same key, or the result of `read`.
fn recalled<T: Clone>(
    keeps: bool,
    kept: &mut Option<(String, T)>,
    key: String,
    read: impl FnOnce() -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    if let Some((_, found)) = kept.as_ref().filter(|(of, _)| *of == key) {
        return Ok(found.clone());
    }
    let found = read()?;
    *kept = keeps.then(|| (key, found.clone()));
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::training::TrainOptions;

    #[test]
    fn a_part_of_the_files_is_named_and_a_number_of_drawings_is_not() {
        let sentence = |line: &str| {
            let words = ["train"].into_iter().chain(line.split_whitespace());
            TrainOptions::read(words).unwrap().data.not_covered()
        };
        assert_eq!([sentence("mnist"), sentence("digits --train-size 9")], [None, None]);
        let part = sentence("mnist --train-size 9").unwrap();
        assert!(part.contains("the first 9 examples of the files (--train-size)"), "{part}");
    }

    #[test]
    fn data_is_read_again_only_with_other_options() {
        for keeps in [false, true] {
            let (mut kept, mut reads) = (None, 0);
            for key in ["a", "a", "b", "b", "a"] {
                let read = || {
                    reads += 1;
                    Ok(key.to_string())
                };
                assert_eq!(recalled(keeps, &mut kept, key.into(), read).unwrap(), key);
            }
            assert_eq!(reads, if keeps { 3 } else { 5 });
        }
    }
}
