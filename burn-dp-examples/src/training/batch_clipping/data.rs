//! The images of a run: private, public, and for tests.

use std::path::PathBuf;

use burn_dp::PublicData;

use super::BatchModelName;
use crate::data::{ImageBatcher, ImageDataset, ImageItem, Splits};
use crate::training::options::{DatasetName, typed};
use crate::training::{DataOptions, TrainError, public_data};

/// Images to train on, public images, and images to test on.
#[derive(Debug, Clone)]
pub struct BatchData {
    /// Name of the data set in reports.
    pub name: String,
    /// Converts images into tensors.
    pub encoder: ImageBatcher,
    /// Images to train on.
    pub private: Vec<ImageItem>,
    /// Public images, where the training needs them.
    pub public: Option<PublicData<ImageItem>>,
    /// Images to test on.
    pub test: ImageDataset,
    /// Number of classes.
    pub classes: usize,
}

impl BatchData {
    /// Creates the data of a training run from images whose public part was set aside.
    pub fn new(splits: Splits<ImageBatcher>, public: Option<PublicData<ImageItem>>) -> Self {
        let Splits { name, encoder, train, test, classes } = splits;
        Self { name, encoder, private: train.items().to_vec(), public, test, classes }
    }
}

/// Reads the images of checked options.
///
/// # Arguments
///
/// - `model`: the network that will read the images
/// - `public`: whether public images are needed
///
/// # Errors
///
/// Returns [`TrainError::Option`] for a data set that the network cannot read or if there is no
/// public source, and [`TrainError::Data`] if the data cannot be read.
pub(super) fn read(
    options: &DataOptions,
    model: BatchModelName,
    public: bool,
) -> Result<BatchData, TrainError> {
    use DatasetName::{Cifar10, Digits, FashionMnist, Mnist};
    if !matches!(options.dataset, Digits | Mnist | FashionMnist | Cifar10) {
        let reason = format!(
            "batch does not train on {}; give digits, mnist, fashion-mnist or cifar10",
            typed(options.dataset)
        );
        return Err(TrainError::option("--clipping", reason));
    }
    let colored = options.dataset == Cifar10;
    let shape = if colored { ImageBatcher::CIFAR10.shape } else { ImageBatcher::MNIST.shape };
    if !model.reads(shape) {
        let reason = format!(
            "{} reads gray images of 28 x 28 pixels, not {}; give bn-convnet or bn-resnet18",
            typed(model),
            typed(options.dataset)
        );
        return Err(TrainError::option("--model", reason));
    }
    if public {
        let plain = if model.has_batch_norm() { model.other() } else { model };
        let instead = format!("`--model {}` with `--policy flat`", typed(plain));
        public_data::check(options, "BatchNorm or this policy", &instead)?;
    }
    let splits = options.images(0)?;
    let public = public.then(|| public_data::images(options, &splits)).transpose()?;
    Ok(BatchData::new(splits, public))
}

/// Checks the options and reads the images, with public ones.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, and [`TrainError::Data`] if the data
/// cannot be read.
pub fn load(options: &DataOptions, model: BatchModelName) -> Result<BatchData, TrainError> {
    let environment: Option<PathBuf> = DataOptions::environment();
    read(&options.clone().checked(environment)?, model, true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::training::TrainOptions;

    #[test]
    fn impossible_options_are_refused_before_anything_is_drawn() {
        for (line, expected) in [
            ("--train-size 0", "--train-size must be at least 1, got 0"),
            ("--test-size 0", "--test-size must be at least 1, got 0"),
            ("--public-size 0", "--public-size must be at least 1, got 0"),
            ("--train-size 10000001", "--train-size must be at most 10000000 synthetic digits"),
            (
                "--data-dir nowhere",
                "--data-dir nowhere is given but the synthetic digits need no files",
            ),
            ("mnist --data-dir nowhere --public-data digits", "nowhere does not exist"),
            ("mnist --data-dir nowhere", "--public-data must be given for mnist with BatchNorm"),
            ("cifar10 --data-dir d", "--model bn-lenet5 reads gray images of 28 x 28 pixels, not"),
            ("imdb --data-dir d", "--clipping batch does not train on imdb; give digits, mnist"),
            ("--public-size 10000001", "--public-size must be at most 10000000 synthetic digits"),
        ] {
            let words = ["train", "--clipping", "batch"].into_iter().chain(line.split(' '));
            let options = TrainOptions::read(words).unwrap();
            let error = load(&options.data, BatchModelName::BnLenet5).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[cfg(feature = "images")]
    #[test]
    fn photographs_of_a_folder_are_public_images_of_the_size_of_cifar10() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["data_batch_1.bin", "test_batch.bin"] {
            let image = |label: u8| [vec![label], vec![20 * label; 3 * 32 * 32]].concat();
            std::fs::write(at(name), (0..10).flat_map(image).collect::<Vec<u8>>()).unwrap();
        }
        for (name, side) in [("train/cat/1.png", 50), ("train/dog/2.png", 20), ("val/cat/3.png", 9)]
        {
            let path = at("photographs").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            image::RgbImage::from_pixel(side, side, image::Rgb([7, 8, 9])).save(path).unwrap();
        }
        let line = format!(
            "train --recipe cifar10-batch-clipping --data-dir {} --public-data folder --public-dir \
             {}",
            folder.path().display(),
            at("photographs").display()
        );
        let options = TrainOptions::read(line.split(' ')).unwrap();
        let data = load(&options.data, BatchModelName::BnResnet18).unwrap();
        let public = data.public.unwrap();
        assert_eq!((data.private.len(), public.items().len()), (10, 2));
        for item in public.items() {
            let planes = item.image.chunks(32 * 32).map(|plane| (plane.len(), plane[0]));
            assert_eq!(planes.collect::<Vec<_>>(), [(1024, 7), (1024, 8), (1024, 9)]);
        }
    }
}
