//! The readers of data sets and recipes. Each returns whether the input was accepted.

use burn::data::dataset::Dataset;
use burn_dp_examples::data::shakespeare::{self, Tokens, UserWindows};
use burn_dp_examples::data::{Vocabulary, WordVectors, cifar10, folder as images_of, idx, imdb};
use burn_dp_examples::training::batch_clipping::BatchSettings;
use burn_dp_examples::training::federated::FederatedSettings;
use burn_dp_examples::training::individual::IndividualSettings;
use burn_dp_examples::training::{Mode, TrainOptions};

use super::files::{with_file, with_files};

/// Reads an IDX file of MNIST, which has as many items as its header says.
pub fn images(bytes: &[u8]) -> bool {
    with_file("train-images-idx3-ubyte", bytes, |path| {
        let promised = bytes.get(4..8).and_then(|count| <[u8; 4]>::try_from(count).ok());
        let promised = promised.map(|count| u32::from_be_bytes(count) as usize);
        let (images, labels) = (idx::read_images(path), idx::read_labels(path));
        if let Ok(images) = &images {
            assert!(!images.is_empty());
            assert!(bytes[0] == 0x1f || Some(images.len()) == promised);
        }
        if let Ok(labels) = &labels {
            assert!(labels.iter().all(|&label| label < 10));
            assert!(bytes[0] == 0x1f || Some(labels.len()) == promised);
        }
        images.is_ok() || labels.is_ok()
    })
}

/// Reads the binary records of CIFAR-10: images with their labels.
pub fn records(bytes: &[u8]) -> bool {
    with_files(&[("data_batch_1.bin", bytes), ("test_batch.bin", bytes)], |folder| {
        let Ok(splits) = cifar10::read(folder) else { return false };
        assert_eq!(splits.train.len(), bytes.len() / 3073);
        assert_eq!(splits.test.len(), splits.train.len());
        true
    })
}

/// Reads an archive as CIFAR-10 and as reviews: splits that have items.
pub fn archive(bytes: &[u8]) -> bool {
    with_file("archive.tar", bytes, |path| {
        let vocabulary = Vocabulary::listed(["good", "bad"].map(String::from));
        let (images, reviews) = (cifar10::read(path), imdb::read(path, &vocabulary, 8));
        if let Ok(splits) = &images {
            assert!(splits.train.len() > 0 && splits.test.len() > 0);
        }
        if let Ok(splits) = &reviews {
            assert!(splits.train.len() > 0 && splits.test.len() > 0);
        }
        images.is_ok() || reviews.is_ok()
    })
}

/// Reads a PNG or JPEG file in a folder of images.
pub fn folder(bytes: &[u8]) -> bool {
    let names = ["train/a/1.png", "train/b/1.jpg", "test/a/1.png"];
    with_files(&names.map(|name| (name, bytes)), |path| {
        let Ok(splits) = images_of::read(path, 8) else { return false };
        assert_eq!(splits.train.len(), 2);
        true
    })
}

/// Reads the roles of the plays, one JSON object in each line. Each is one user, whose name occurs
/// once.
pub fn plays(bytes: &[u8]) -> bool {
    with_file("shakespeare-users.jsonl", bytes, |path| {
        let folder = path.parent().expect("a folder");
        let Ok(roles) = shakespeare::from_folder(folder) else { return false };
        let mut names: Vec<_> = roles.iter().map(|role| &role.user).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), roles.len());
        let users = UserWindows::new(&roles, &Tokens::Characters, 8);
        assert_eq!(users.users().len(), roles.len());
        assert!(users.users().iter().flatten().all(|window| window.len() == 9));
        true
    })
}

/// Reads a list of words, whose numbers are below the size of the vocabulary.
pub fn words(bytes: &[u8]) -> bool {
    with_file("words.txt", bytes, |path| {
        let Ok(tokens) = Tokens::words(path) else { return false };
        let text = String::from_utf8_lossy(bytes);
        assert!(tokens.encode(&text).iter().all(|&token| usize::from(token) < tokens.len()));
        true
    })
}

/// Reads a file of word vectors: a table with a row for each word.
pub fn word_vectors(bytes: &[u8]) -> bool {
    with_file("vectors.txt", bytes, |path| {
        let Ok(vectors) = WordVectors::read(path, 1000) else { return false };
        assert_eq!(vectors.rows.len(), vectors.vocabulary.len() * vectors.dimension);
        assert!(vectors.rows.iter().all(|value| value.is_finite()));
        true
    })
}

/// Reads a recipe: options of a training mode, whose settings are possible or an error.
pub fn recipe(bytes: &[u8]) -> bool {
    with_file("recipe.toml", bytes, |path| {
        let folder = path.parent().expect("a folder");
        let words = ["train", "--recipe"].map(Into::into).into_iter();
        let words = words.chain([path.into(), "--output".into(), folder.join("out").into()]);
        let Ok(options) = TrainOptions::read::<std::ffi::OsString>(words) else { return false };
        match options.mode() {
            Mode::Individual | Mode::Ordinary => {
                IndividualSettings::new(options, Some(folder.into())).is_ok()
            }
            Mode::Batch => BatchSettings::try_from(&options).is_ok(),
            Mode::Users => FederatedSettings::try_from(&options).is_ok(),
        }
    })
}
