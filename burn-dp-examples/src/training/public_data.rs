//! Public examples: synthetic digits, or from a data set other than the training data.

use std::collections::HashSet;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use burn_dp::{PublicData, PublicSource};

use super::TrainError;
use super::loading::DataOptions;
use super::options::{DatasetName, typed};
use crate::data::{Encoder, ImageBatcher, ImageItem, Splits, TextBatcher, TextItem, digits, mnist};

/// Number of public examples by default.
const PUBLIC_SIZE: usize = 1_000;

/// Checks, before anything is read, that there is a public source.
///
/// # Arguments
///
/// - `needed_by`: the option that needs public examples, for example `--clipping layerwise`
/// - `instead`: an alternative that needs none
///
/// # Errors
///
/// Returns [`TrainError::Option`] if no source is given for a data set other than the synthetic
/// digits, or if the source is the training data.
pub(super) fn check(
    options: &DataOptions,
    needed_by: &str,
    instead: &str,
) -> Result<(), TrainError> {
    let trained = typed(options.dataset);
    let Some(public) = options.public_dataset() else {
        let drawn = match options.dataset {
            DatasetName::Mnist | DatasetName::FashionMnist => "`--public-data digits`, or ",
            _ => "",
        };
        let reason = format!(
            "must be given for {trained} with {needed_by}: public examples come from another \
             source than the private ones; give {drawn}a data set with --public-dir, or \
             {instead}, which needs none"
        );
        return Err(TrainError::option("--public-data", reason));
    };
    let named = typed(public);
    let texts = |dataset| dataset == DatasetName::Imdb;
    if texts(public) != texts(options.dataset) {
        let reason = format!("{named} has other inputs than {trained}; give another data set");
        return Err(TrainError::option("--public-data", reason));
    }
    match (public, &options.public_dir) {
        (DatasetName::Digits, None) => Ok(()),
        (DatasetName::Digits, Some(_)) => {
            let reason = "is given but the synthetic digits need no files; leave it out";
            Err(TrainError::option("--public-dir", reason))
        }
        (_, None) => {
            let reason = format!("must be given for --public-data {named}");
            Err(TrainError::option("--public-dir", reason))
        }
        (_, Some(folder)) if public == options.dataset => check_apart(options, public, folder),
        (_, Some(folder)) if reads_same_files(options, public, folder) => {
            let reason = format!(
                "{} has the files that are trained on as {trained}, so they are private; give \
                 the folder of {named}, whose files have the same names",
                folder.display()
            );
            Err(TrainError::option("--public-dir", reason))
        }
        (_, Some(_)) => Ok(()),
    }
}

/// Whether the files of the public data set are the files of the private one: MNIST
/// and Fashion-MNIST have files with equal names.
fn reads_same_files(options: &DataOptions, public: DatasetName, folder: &Path) -> bool {
    let private = options.data_dir.as_deref();
    match (options.dataset, public) {
        (DatasetName::Mnist, DatasetName::FashionMnist) => {
            private.is_some_and(|private| mnist::are_same_files(private, folder))
        }
        (DatasetName::FashionMnist, DatasetName::Mnist) => {
            private.is_some_and(|private| mnist::are_same_files(folder, private))
        }
        _ => false,
    }
}

/// Returns an error if public examples would be private ones.
fn check_apart(
    options: &DataOptions,
    public: DatasetName,
    folder: &Path,
) -> Result<(), TrainError> {
    let named = typed(public);
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let private = options.data_dir.as_deref().map(whole);
    // The files of these two may contain anything.
    let open = matches!(public, DatasetName::Folder | DatasetName::Imdb);
    let nested = private.is_none_or(|private| {
        private.starts_with(whole(folder)) || whole(folder).starts_with(private)
    });
    if open && !nested {
        return Ok(());
    }
    let reason = format!(
        "{named} is trained on, so its examples are private; give another data set{}",
        if open { ", or another --public-dir" } else { "" }
    );
    Err(TrainError::option("--public-data", reason))
}

/// Returns public images of the shape of the private ones; images of a folder are scaled to it.
///
/// # Errors
///
/// Returns [`TrainError::Data`] if the files cannot be read, and [`TrainError::Option`] if the
/// images have another shape or more classes.
pub(super) fn images(
    options: &DataOptions,
    private: &Splits<ImageBatcher>,
) -> Result<PublicData<ImageItem>, TrainError> {
    let expected = private.encoder.shape;
    let size = options.public_size.unwrap_or(PUBLIC_SIZE);
    let (data, shape) = if options.public_dataset() == Some(DatasetName::Digits) {
        (digits::public(options.seed, size)?, ImageBatcher::MNIST.shape)
    } else {
        let (source, public) = source(options)?;
        let splits = public.images(expected.height)?;
        (source.data(splits.train.items().to_vec())?, splits.encoder.shape)
    };
    if shape != expected {
        let reason = format!(
            "has images of {}x{}x{}, and {} has {}x{}x{}; give another data set",
            shape.channels,
            shape.height,
            shape.width,
            private.name,
            expected.channels,
            expected.height,
            expected.width
        );
        return Err(TrainError::option("--public-data", reason));
    }
    check_classes(data.items().iter().map(|item| item.label), private)?;
    check_not_private(data.items(), private.train.items())?;
    Ok(data)
}

/// Returns public film reviews, read like the private ones.
///
/// # Errors
///
/// Returns [`TrainError::Data`] if the files cannot be read.
pub(super) fn reviews(
    options: &DataOptions,
    private: &Splits<TextBatcher>,
    vocabulary_size: usize,
    length: usize,
    word_vectors: Option<&PathBuf>,
) -> Result<PublicData<TextItem>, TrainError> {
    let (source, public) = source(options)?;
    let (splits, _) = public.reviews(vocabulary_size, length, word_vectors)?;
    check_classes(splits.train.items().iter().map(|item| item.label), private)?;
    check_not_private(splits.train.items(), private.train.items())?;
    Ok(source.data(splits.train.items().to_vec())?)
}

/// Returns the name of a published data set, and the options that read it.
fn source(options: &DataOptions) -> Result<(PublicSource, DataOptions), TrainError> {
    let dataset = options.public_dataset().ok_or_else(|| {
        TrainError::option("--public-data", "must be given; --help lists the data sets")
    })?;
    let folder = options.public_dir.as_deref().and_then(Path::file_name);
    let name = match (dataset, folder) {
        (DatasetName::Folder | DatasetName::Imdb, Some(folder)) => {
            format!("{}, {}", typed(dataset), folder.display())
        }
        _ => typed(dataset),
    };
    let read = DataOptions {
        dataset,
        data_dir: options.public_dir.clone(),
        train_size: Some(options.public_size.unwrap_or(PUBLIC_SIZE)),
        test_size: Some(0),
        ..options.clone()
    };
    Ok((PublicSource::published(name), read))
}

/// Returns an error if half of the public examples or more are trained on: they are private ones
/// from another file. A few equal examples are in many data sets. The error does not say how many
/// there are, because that is private.
fn check_not_private<T: Eq + Hash>(public: &[T], private: &[T]) -> Result<(), TrainError> {
    let private: HashSet<&T> = private.iter().collect();
    let found = public.iter().filter(|item| private.contains(item)).count();
    if found == 0 || 2 * found < public.len() {
        return Ok(());
    }
    let reason = "has at least half of its examples among the private ones; give examples that are \
                  not trained on";
    Err(TrainError::option("--public-data", reason))
}

/// Returns an error if a label is not a class of the private data.
fn check_classes<E: Encoder>(
    labels: impl Iterator<Item = u16>,
    private: &Splits<E>,
) -> Result<(), TrainError> {
    match labels.max() {
        Some(label) if usize::from(label) >= private.classes => {
            let reason = format!(
                "has the class {label}, and {} has {} classes; give another data set",
                private.name, private.classes
            );
            Err(TrainError::option("--public-data", reason))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::training::TrainOptions;

    fn options(line: &str) -> DataOptions {
        let words = std::iter::once("train").chain(line.split_whitespace());
        TrainOptions::read(words).unwrap().data
    }

    fn checked(line: &str) -> Result<(), TrainError> {
        check(&options(line), "--clipping layerwise", "--clipping per-layer")
    }

    #[test]
    fn private_examples_from_another_file_are_not_public() {
        let private: Vec<u32> = (0..100).collect();
        let error = check_not_private(&[5, 200, 7, 99], &private).unwrap_err().to_string();
        assert!(error.contains("at least half of its examples among the private"), "{error}");
        check_not_private(&[5, 200, 300], &private).unwrap();
        check_not_private(&[200], &private).unwrap();
        check_not_private(&[], &private).unwrap();
    }

    #[test]
    fn private_examples_are_never_public() {
        let here = env!("CARGO_MANIFEST_DIR");
        for (line, expected) in [
            ("mnist", "must be given for mnist with --clipping layerwise: public examples come"),
            ("mnist", "`--public-data digits`, or a data set with --public-dir, or --clipping"),
            ("cifar10 --data-dir d", "give a data set with --public-dir, or --clipping per-layer"),
            ("mnist --public-data mnist --public-dir d", "mnist is trained on, so its examples"),
            (
                "cifar10 --data-dir c --public-data cifar10 --public-dir d",
                "cifar10 is trained on, so its examples are private; give another data set",
            ),
            ("folder --data-dir d --public-data folder --public-dir d", "or another --public-dir"),
            (
                &format!("folder --data-dir {here} --public-data folder --public-dir {here}/src"),
                "folder is trained on",
            ),
            ("mnist --public-data fashion-mnist", "--public-dir must be given for --public-data"),
            ("mnist --public-data digits --public-dir d", "the synthetic digits need no files"),
            ("imdb --data-dir d --public-data digits", "digits has other inputs than imdb"),
            ("cifar10 --public-data imdb --public-dir d", "imdb has other inputs than cifar10"),
        ] {
            let error = checked(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        for line in [
            "digits",
            "digits --public-data digits",
            "mnist --public-data digits",
            "mnist --public-data fashion-mnist --public-dir d",
            "folder --data-dir a --public-data folder --public-dir b",
            "imdb --data-dir a --public-data imdb --public-dir b",
        ] {
            assert!(checked(line).is_ok(), "{line}: {}", checked(line).unwrap_err());
        }
    }

    // The files of MNIST and Fashion-MNIST have equal names.
    #[test]
    fn private_files_are_not_public_under_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |name: &str| {
            let path = root.join(name).join("train-images-idx3-ubyte");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        };
        let line = |private: &str, [data, public]: [&str; 2]| {
            let [data, dir] = [data, public].map(|name| root.join(name));
            let other = if private == "mnist" { "fashion-mnist" } else { "mnist" };
            format!(
                "{private} --data-dir {} --public-data {other} --public-dir {}",
                data.display(),
                dir.display()
            )
        };
        write("one");
        write("other");
        for private in ["mnist", "fashion-mnist"] {
            let same = line(private, ["one", "one"]);
            let error = checked(&same).unwrap_err().to_string();
            assert!(error.contains("has the files that are trained on"), "{error}");
            checked(&line(private, ["one", "other"])).unwrap();
        }
        // Separate subfolders distinguish them.
        write("both/mnist");
        write("both/fashion-mnist");
        checked(&line("mnist", ["both", "both"])).unwrap();
    }

    #[test]
    fn public_digits_are_not_the_ones_that_are_trained_on() {
        let options = options("digits --train-size 300 --public-size 200 --seed 3");
        let private = options.images(0).unwrap();
        let public = super::images(&options, &private).unwrap();
        assert_eq!(public.items().len(), 200);
        let private = private.train.items();
        assert!(public.items().iter().all(|item| private.iter().all(|p| p.image != item.image)));
        assert!(public.to_string().contains("generated, 200 items"), "{public}");
    }

    #[test]
    fn public_images_of_another_shape_are_refused() {
        let options = options("cifar10 --data-dir d --public-data digits");
        let digits = digits::splits(0, 1, 1);
        let cifar = Splits { encoder: ImageBatcher::CIFAR10, ..digits };
        let error = super::images(&options, &cifar).unwrap_err().to_string();
        assert!(error.contains("1x28x28") && error.contains("3x32x32"), "{error}");
        let two = Splits { classes: 2, ..digits::splits(0, 1, 1) };
        let error = super::images(&options, &two).unwrap_err().to_string();
        assert!(error.contains("has the class 9") && error.contains("2 classes"), "{error}");
    }
}
