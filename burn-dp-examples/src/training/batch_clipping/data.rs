//! The images of a run: private, public, and for tests.

use std::path::PathBuf;

use burn_dp::PublicData;

use crate::data::{ImageBatcher, ImageDataset, ImageItem};
use crate::training::TrainError;
use crate::training::options::{DataOptions, DatasetName, typed};

/// Images to train on, public images, and images to test on.
#[derive(Debug, Clone)]
pub struct BatchData {
    /// Name of the data set in reports.
    pub name: String,
    pub(super) encoder: ImageBatcher,
    pub(super) private: Vec<ImageItem>,
    /// Public images, where the training needs them.
    pub(super) public: Option<PublicData<ImageItem>>,
    pub(super) test: ImageDataset,
}

/// Reads the images of checked options.
///
/// # Arguments
///
/// - `public`: whether public images are needed
///
/// # Errors
///
/// Returns [`TrainError::Option`] for a data set without gray images of 28 x 28 pixels or if there
/// is no public source, and [`TrainError::Data`] if the data cannot be read.
pub(super) fn read(options: &DataOptions, public: bool) -> Result<BatchData, TrainError> {
    use DatasetName::{Digits, FashionMnist, Mnist};
    if !matches!(options.dataset, Digits | Mnist | FashionMnist) {
        let reason = format!(
            "batch trains on gray images of 28 x 28 pixels, not on {}; give digits, mnist or \
             fashion-mnist",
            typed(options.dataset)
        );
        return Err(TrainError::option("--clipping", reason));
    }
    if public {
        let instead = "`--model lenet5` with `--policy flat`";
        options.check_public("BatchNorm or this policy", instead)?;
    }
    let splits = options.images(0)?;
    let public = public.then(|| options.public_images(&splits, 0)).transpose()?;
    let private = splits.train.items().to_vec();
    Ok(BatchData { name: splits.name, encoder: splits.encoder, private, public, test: splits.test })
}

/// Checks the options and reads the images, with public ones.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, and [`TrainError::Data`] if the data
/// cannot be read.
pub fn load(options: &DataOptions) -> Result<BatchData, TrainError> {
    let environment: Option<PathBuf> = DataOptions::environment();
    read(&options.clone().checked(environment)?, true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::training::batch_clipping::BatchOptions;
    use crate::training::options::TrainingOptions;

    #[test]
    fn impossible_options_are_refused_before_anything_is_drawn() {
        for (line, expected) in [
            ("--train-size 0", "--train-size must be at least 1, got 0"),
            ("--test-size 0", "--test-size must be at least 1, got 0"),
            ("--public-size 0", "--public-size must be at least 1, got 0"),
            ("--train-size 10000001", "--train-size must be at most 10000000 drawn digits"),
            (
                "--data-dir nowhere",
                "--data-dir nowhere is given but the drawn digits need no files",
            ),
            ("mnist --data-dir nowhere --public-data digits", "nowhere holds none of"),
            ("mnist --data-dir nowhere", "--public-data must be given for mnist with BatchNorm"),
            ("--public-size 10000001", "--public-size must be at most 10000000 drawn digits"),
        ] {
            let words = ["train", "--clipping", "batch"].into_iter().chain(line.split(' '));
            let options = BatchOptions::read(words).unwrap();
            let error = load(&options.data).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
