//! The images of a run: private, public, and measured on.

use super::DataOptions;
use crate::data::{ImageBatcher, ImageDataset, ImageItem, digits, mnist};
use crate::training::options::typed;
use crate::training::settings::{needs_no_files, no_data_dir};
use crate::training::{DatasetName, TrainError, checks};

/// Images that are trained on, that are public, and that are measured on.
pub(crate) struct BatchData {
    pub(crate) name: String,
    pub(crate) encoder: ImageBatcher,
    pub(crate) private: Vec<ImageItem>,
    pub(crate) public: Vec<ImageItem>,
    pub(crate) test: ImageDataset,
}

impl DataOptions {
    fn check(&self) -> Result<(), TrainError> {
        checks::at_least_one([
            ("--train-size", self.train_size.unwrap_or(1)),
            ("--test-size", self.test_size.unwrap_or(1)),
            ("--public-size", self.public_size.unwrap_or(1)),
        ])?;
        if self.dataset == DatasetName::Digits {
            checks::drawable(self.train_size, self.test_size)?;
            if let Some(folder) = &self.data_dir {
                return Err(needs_no_files(folder));
            }
        }
        Ok(())
    }
}

/// Reads the data and keeps some images as public.
///
/// # Errors
///
/// For an option that is impossible, when the data cannot be read, or nothing would be left to train on.
pub(crate) fn load(options: &DataOptions) -> Result<BatchData, TrainError> {
    options.check()?;
    let folder = options.data_dir.clone();
    let folder = folder.or_else(|| std::env::var_os("BURN_DP_DATA").map(Into::into));
    let splits = match (options.dataset, folder) {
        (DatasetName::Digits, _) => digits::splits(
            options.seed,
            options.train_size.unwrap_or(digits::TRAIN_ITEMS),
            options.test_size.unwrap_or(digits::TEST_ITEMS),
        ),
        (DatasetName::Mnist, Some(folder)) => mnist::from_folder(&folder)?,
        (DatasetName::Mnist, None) => mnist::downloaded()?,
        (DatasetName::FashionMnist, Some(folder)) => mnist::fashion_from_folder(&folder)?,
        (DatasetName::FashionMnist, None) => return Err(no_data_dir(options.dataset)),
        (dataset, _) => {
            let dataset = typed(dataset);
            let reason = format!(
                "batch trains on grey images of 28 x 28 pixels, not on {dataset}; give digits, \
                 mnist or fashion-mnist"
            );
            return Err(TrainError::option("--clipping", reason));
        }
    };
    let train = splits.train.truncated(options.train_size.unwrap_or(usize::MAX));
    let test = splits.test.truncated(options.test_size.unwrap_or(usize::MAX));
    let mut private = train.items().to_vec();
    let public = options.public_size.unwrap_or(private.len().div_ceil(10));
    if public >= private.len() {
        let reason = format!(
            "must be less than the {} images to train on, got {public}; give a smaller one",
            private.len()
        );
        return Err(TrainError::option("--public-size", reason));
    }
    // The last ones, whoever they are.
    let public = private.split_off(private.len() - public);
    Ok(BatchData { name: splits.name, encoder: splits.encoder, private, public, test })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;
    use crate::training::batch_clipping::BatchOptions;

    #[test]
    fn impossible_and_foreign_options_are_refused_before_anything_is_drawn() {
        for (line, expected) in [
            ("--train-size 0", "--train-size must be at least 1, got 0"),
            ("--test-size 0", "--test-size must be at least 1, got 0"),
            ("--public-size 0", "--public-size must be at least 1, got 0"),
            ("--train-size 10000001", "--train-size must be at most 10000000 drawn digits"),
            (
                "--data-dir nowhere",
                "--data-dir nowhere is given but the drawn digits need no files",
            ),
            ("mnist --data-dir nowhere", "nowhere holds none of"),
        ] {
            let words = ["train", "--clipping", "batch"].into_iter().chain(line.split(' '));
            let options = BatchOptions::try_parse_from(words).unwrap();
            let error = load(&options.data).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
