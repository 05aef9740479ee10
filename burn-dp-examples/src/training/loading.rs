//! The data set that the settings name.

use super::options::DatasetName;
use super::settings::no_data_dir;
use super::{Settings, TrainError};
use crate::data::{
    ImageBatcher, Splits, TextBatcher, Vocabulary, WordVectors, cifar10, digits, folder, imdb,
    mnist,
};

/// A data set, ready to train on.
pub(super) enum Data {
    /// Labelled images.
    Images(Splits<ImageBatcher>),
    /// Labelled texts, and the vectors of their words if they come from elsewhere.
    Texts(Splits<TextBatcher>, Option<WordVectors>),
}

/// Reads or draws the data.
///
/// # Errors
///
/// Those of the readers.
pub(super) fn load(settings: &Settings) -> Result<Data, TrainError> {
    let cut = |size: Option<usize>| size.unwrap_or(usize::MAX);
    let sizes = (cut(settings.train_size), cut(settings.test_size));
    let data = match (settings.dataset, &settings.data_dir) {
        (DatasetName::Digits, _) => Data::Images(digits::splits(
            settings.seed,
            settings.train_size.unwrap_or(digits::TRAIN_ITEMS),
            settings.test_size.unwrap_or(digits::TEST_ITEMS),
        )),
        (DatasetName::Mnist, None) => Data::Images(mnist::downloaded()?),
        (DatasetName::Mnist, Some(path)) => Data::Images(mnist::from_folder(path)?),
        (DatasetName::FashionMnist, Some(path)) => Data::Images(mnist::fashion_from_folder(path)?),
        (DatasetName::Cifar10, Some(path)) => Data::Images(cifar10::read(path)?),
        (DatasetName::Folder, Some(path)) => {
            Data::Images(folder::read(path, settings.inputs.image_size)?)
        }
        (DatasetName::Imdb, Some(path)) => {
            let inputs = &settings.inputs;
            let vectors = match &inputs.word_vectors {
                Some(file) => Some(WordVectors::read(file, inputs.vocabulary_size)?),
                None => None,
            };
            let hashed = Vocabulary::Hashed { buckets: inputs.vocabulary_size as u32 };
            let vocabulary = vectors.as_ref().map_or(&hashed, |vectors| &vectors.vocabulary);
            Data::Texts(imdb::read(path, vocabulary, inputs.sequence_length)?, vectors)
        }
        (dataset, None) => return Err(no_data_dir(dataset)),
    };
    Ok(match data {
        Data::Images(splits) => Data::Images(splits.truncated(sizes.0, sizes.1)),
        Data::Texts(splits, vectors) => Data::Texts(splits.truncated(sizes.0, sizes.1), vectors),
    })
}
