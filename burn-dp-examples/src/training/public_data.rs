//! Public examples: drawn by the program, or from a data set other than the training data.

use std::path::{Path, PathBuf};

use burn_dp::{PublicData, PublicSource};

use super::TrainError;
use super::options::{DataOptions, DatasetName, typed};
use crate::data::{Encoder, ImageBatcher, ImageItem, Splits, TextBatcher, TextItem, digits, mnist};

/// Number of public examples by default.
const PUBLIC_SIZE: usize = 1_000;

impl DataOptions {
    /// Checks, before anything is read, that there is a public source.
    ///
    /// # Arguments
    ///
    /// - `needed_by`: the option that needs public examples, for example `--clipping layerwise`
    /// - `instead`: an alternative that needs none
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if no source is given for a data set other than the drawn
    /// digits, or if the source is the training data.
    pub(super) fn check_public(&self, needed_by: &str, instead: &str) -> Result<(), TrainError> {
        let trained = typed(self.dataset);
        let Some(public) = self.public_dataset() else {
            let drawn = match self.dataset {
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
        if texts(public) != texts(self.dataset) {
            let reason = format!("{named} has other inputs than {trained}; give another data set");
            return Err(TrainError::option("--public-data", reason));
        }
        match (public, &self.public_dir) {
            (DatasetName::Digits, None) => Ok(()),
            (DatasetName::Digits, Some(_)) => {
                let reason = "is given but the drawn digits need no files; leave it out";
                Err(TrainError::option("--public-dir", reason))
            }
            (_, None) => {
                let reason = format!("must be given for --public-data {named}");
                Err(TrainError::option("--public-dir", reason))
            }
            (_, Some(folder)) if public == self.dataset => self.check_apart(public, folder),
            (_, Some(folder)) if self.reads_same_files(public, folder) => {
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
    fn reads_same_files(&self, public: DatasetName, folder: &Path) -> bool {
        let private = self.data_dir.as_deref();
        match (self.dataset, public) {
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
    fn check_apart(&self, public: DatasetName, folder: &Path) -> Result<(), TrainError> {
        let named = typed(public);
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let private = self.data_dir.as_deref().map(whole);
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

    /// Returns the data set of the public examples.
    pub(super) fn public_dataset(&self) -> Option<DatasetName> {
        let drawn = (self.dataset == DatasetName::Digits).then_some(DatasetName::Digits);
        self.public_data.or(drawn)
    }

    /// Returns public images of the shape of the private ones.
    ///
    /// # Arguments
    ///
    /// - `side`: pixels per side to which images of a folder are scaled
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Data`] if the files cannot be read, and [`TrainError::Option`] if the
    /// images have another shape or more classes.
    pub(super) fn public_images(
        &self,
        private: &Splits<ImageBatcher>,
        side: usize,
    ) -> Result<PublicData<ImageItem>, TrainError> {
        let size = self.public_size.unwrap_or(PUBLIC_SIZE);
        let (data, shape) = if self.public_dataset() == Some(DatasetName::Digits) {
            (digits::public(self.seed, size)?, ImageBatcher::MNIST.shape)
        } else {
            let (source, public) = self.public_source()?;
            let splits = public.images(side)?;
            (source.data(splits.train.items().to_vec())?, splits.encoder.shape)
        };
        let expected = private.encoder.shape;
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
        Ok(data)
    }

    /// Returns public film reviews, read like the private ones.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Data`] if the files cannot be read.
    pub(super) fn public_reviews(
        &self,
        private: &Splits<TextBatcher>,
        vocabulary_size: usize,
        length: usize,
        word_vectors: Option<&PathBuf>,
    ) -> Result<PublicData<TextItem>, TrainError> {
        let (source, public) = self.public_source()?;
        let (splits, _) = public.reviews(vocabulary_size, length, word_vectors)?;
        check_classes(splits.train.items().iter().map(|item| item.label), private)?;
        Ok(source.data(splits.train.items().to_vec())?)
    }

    /// Returns the name of a published data set, and the options that read it.
    fn public_source(&self) -> Result<(PublicSource, Self), TrainError> {
        let dataset = self.public_dataset().ok_or_else(|| {
            TrainError::option("--public-data", "must be given; --help lists the data sets")
        })?;
        let folder = self.public_dir.as_deref().and_then(Path::file_name);
        let name = match (dataset, folder) {
            (DatasetName::Folder | DatasetName::Imdb, Some(folder)) => {
                format!("{}, {}", typed(dataset), folder.display())
            }
            _ => typed(dataset),
        };
        let options = Self {
            dataset,
            data_dir: self.public_dir.clone(),
            train_size: Some(self.public_size.unwrap_or(PUBLIC_SIZE)),
            test_size: Some(0),
            ..self.clone()
        };
        Ok((PublicSource::published(name), options))
    }
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
    use crate::training::individual::IndividualOptions;
    use crate::training::options::TrainingOptions;

    fn options(line: &str) -> DataOptions {
        let words = std::iter::once("train").chain(line.split_whitespace());
        IndividualOptions::read(words).unwrap().data
    }

    fn checked(line: &str) -> Result<(), TrainError> {
        options(line).check_public("--clipping layerwise", "--clipping per-layer")
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
            ("mnist --public-data digits --public-dir d", "the drawn digits need no files"),
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
        let public = options.public_images(&private, 0).unwrap();
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
        let error = options.public_images(&cifar, 0).unwrap_err().to_string();
        assert!(error.contains("1x28x28") && error.contains("3x32x32"), "{error}");
        let two = Splits { classes: 2, ..digits::splits(0, 1, 1) };
        let error = options.public_images(&two, 0).unwrap_err().to_string();
        assert!(error.contains("has the class 9") && error.contains("2 classes"), "{error}");
    }
}
