//! MNIST and Fashion-MNIST, from their four files. With the feature `download`, MNIST is also read
//! from the cache of `burn-dataset`, which downloads it.
//!
//! # References
//!
//! Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document
//! recognition, 1998.
//!
//! H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine
//! learning algorithms, 2017.

use std::path::{Path, PathBuf};

use super::{CLASSES, DataError, ImageBatcher, ImageDataset, ImageItem, PIXELS, Splits, file, idx};

/// Name of MNIST in reports.
pub const NAME: &str = "mnist";

/// Name of Fashion-MNIST in reports.
pub const FASHION_NAME: &str = "fashion-mnist";

/// Reads the four files of MNIST, plain or compressed, from a folder or its subfolder `mnist`.
///
/// # Errors
///
/// Returns [`DataError::Missing`] with the names that were tried if a file is missing,
/// [`DataError::Damaged`] if it is damaged, and [`DataError::CountMismatch`] if the numbers of
/// labels and images differ.
pub fn from_folder(folder: &Path) -> Result<Splits<ImageBatcher>, DataError> {
    read(folder, NAME, ImageBatcher::MNIST)
}

/// Reads the four files of Fashion-MNIST, plain or compressed, from a folder or its subfolder
/// `fashion-mnist`. The files have the names of MNIST's files.
///
/// # Errors
///
/// Returns [`DataError::Missing`], [`DataError::Damaged`] and [`DataError::CountMismatch`] in the
/// cases that [`from_folder`] lists.
pub fn fashion_from_folder(folder: &Path) -> Result<Splits<ImageBatcher>, DataError> {
    read(folder, FASHION_NAME, ImageBatcher::FASHION_MNIST)
}

/// Returns whether MNIST in one folder and Fashion-MNIST in another one would be read from the same
/// file: without subfolders, the names of their files are equal.
pub fn are_same_files(mnist: &Path, fashion_mnist: &Path) -> bool {
    let images = |folder, name| {
        let found = find(folder, name, "train-images", "idx3-ubyte").ok()?;
        found.canonicalize().ok()
    };
    let found = images(mnist, NAME);
    found.is_some() && found == images(fashion_mnist, FASHION_NAME)
}

/// Reads MNIST from the cache of `burn-dataset`, which downloads the files the first time.
///
/// # Errors
///
/// Returns [`DataError::Download`] if the download fails, and [`DataError::FeatureMissing`] if this
/// program was built without the feature `download`.
pub fn downloaded() -> Result<Splits<ImageBatcher>, DataError> {
    #[cfg(feature = "download")]
    return burn_dataset::splits();
    #[cfg(not(feature = "download"))]
    Err(DataError::FeatureMissing {
        task: "downloading MNIST",
        feature: "download",
        remedy: "give the folder with the four IDX files by --data-dir DIR or BURN_DP_DATA, or run \
                 `cargo xtask train mnist --download`",
    })
}

fn read(
    folder: &Path,
    name: &str,
    encoder: ImageBatcher,
) -> Result<Splits<ImageBatcher>, DataError> {
    Ok(Splits {
        name: name.into(),
        classes: CLASSES,
        encoder,
        train: read_split(folder, name, "train")?,
        test: read_split(folder, name, "t10k")?,
    })
}

fn read_split(folder: &Path, name: &str, prefix: &str) -> Result<ImageDataset, DataError> {
    let images_path = find(folder, name, &format!("{prefix}-images"), "idx3-ubyte")?;
    let labels_path = find(folder, name, &format!("{prefix}-labels"), "idx1-ubyte")?;
    let images = idx::read_images(&images_path)?;
    let labels = idx::read_labels(&labels_path)?;
    if images.len() != labels.len() {
        let counts = [images.len(), labels.len()];
        return Err(DataError::CountMismatch { images: images_path, labels: labels_path, counts });
    }
    let items = images.into_iter().zip(labels);
    let item =
        |(image, label): ([u8; PIXELS], u8)| ImageItem { image: image.into(), label: label.into() };
    Ok(ImageDataset::new(items.map(item).collect()))
}

/// Returns the first existing file among the names in use.
fn find(folder: &Path, name: &str, stem: &str, kind: &str) -> Result<PathBuf, DataError> {
    let tried = ['-', '.'].map(|mark| format!("{stem}{mark}{kind}"));
    let tried: Vec<_> = tried.into_iter().flat_map(|name| [format!("{name}.gz"), name]).collect();
    file::find(folder, name, &tried, "the four IDX files of the data set")
}

#[cfg(feature = "download")]
mod burn_dataset {
    use burn::data::dataset::Dataset;
    use burn::data::dataset::vision::{MnistDataset, MnistItem};

    use super::super::download;
    use super::{CLASSES, DataError, ImageBatcher, ImageDataset, ImageItem, NAME, Splits};

    pub(super) fn splits() -> Result<Splits<ImageBatcher>, DataError> {
        Ok(Splits {
            name: NAME.into(),
            classes: CLASSES,
            encoder: ImageBatcher::MNIST,
            train: split(MnistDataset::train)?,
            test: split(MnistDataset::test)?,
        })
    }

    fn split(read: fn() -> MnistDataset) -> Result<ImageDataset, DataError> {
        let dataset = download::caught(read)?;
        let items = (0..dataset.len()).map(|index| dataset.get(index).map(|item| from_burn(&item)));
        let items = items.collect::<Result<_, _>>();
        items.map(ImageDataset::new).map_err(|error| DataError::Item { reason: error.to_string() })
    }

    /// Burn's item holds the bytes of the file as floats.
    fn from_burn(item: &MnistItem) -> ImageItem {
        let image = item.image.as_flattened().iter().map(|&pixel| pixel as u8).collect();
        ImageItem { image, label: item.label.into() }
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used)]

        use super::*;
        use crate::data::SIDE;

        #[test]
        fn rows_of_burns_images_stay_in_place() {
            let mut item = MnistItem { image: [[0.0; SIDE]; SIDE], label: 7 };
            item.image[2][5] = 200.0;
            let item = from_burn(&item);
            assert_eq!(item.label, 7);
            assert_eq!(item.image.iter().position(|&pixel| pixel == 200), Some(2 * SIDE + 5));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use burn::data::dataset::Dataset;
    use flate2::{Compression, write::GzEncoder};
    use tempfile::TempDir;

    use super::*;

    fn images(count: u32) -> Vec<u8> {
        let words = [idx::IMAGES_MAGIC, count, 28, 28];
        let header = words.iter().flat_map(|word| word.to_be_bytes());
        header.chain((0..count as usize * PIXELS).map(|i| (i / PIXELS) as u8)).collect()
    }

    fn labels(count: u32) -> Vec<u8> {
        let header = [idx::LABELS_MAGIC, count];
        let header = header.iter().flat_map(|word| word.to_be_bytes());
        header.chain((0..count).map(|i| (i % 10) as u8)).collect()
    }

    /// Three images to train on, two to test on.
    fn complete() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, content| std::fs::write(folder.path().join(name), content).unwrap();
        write("train-images-idx3-ubyte", images(3));
        write("train-labels.idx1-ubyte", labels(3));
        write("t10k-images-idx3-ubyte", images(2));
        write("t10k-labels-idx1-ubyte", labels(2));
        folder
    }

    #[test]
    fn four_files_make_two_splits() {
        let folder = complete();
        let splits = from_folder(folder.path()).unwrap();
        assert_eq!((splits.train.len(), splits.test.len()), (3, 2));
        let last = splits.train.get(2).unwrap();
        assert_eq!((last.label, &last.image[..]), (2, &[2; PIXELS][..]));
        let fashion = fashion_from_folder(folder.path()).unwrap();
        assert_eq!((fashion.name.as_str(), fashion.train), (FASHION_NAME, splits.train));
    }

    #[test]
    fn a_compressed_file_replaces_the_plain_one() {
        let folder = complete();
        let plain = folder.path().join("train-images-idx3-ubyte");
        let file = std::fs::File::create(plain.with_extension("gz")).unwrap();
        let mut encoder = GzEncoder::new(file, Compression::fast());
        encoder.write_all(&std::fs::read(&plain).unwrap()).unwrap();
        encoder.finish().unwrap();
        let before = from_folder(folder.path()).unwrap();
        std::fs::remove_file(plain).unwrap();
        assert_eq!(from_folder(folder.path()).unwrap().train, before.train);
    }

    #[test]
    fn a_missing_file_is_reported_with_all_names_tried() {
        let folder = complete();
        std::fs::remove_file(folder.path().join("t10k-images-idx3-ubyte")).unwrap();
        let text = from_folder(folder.path()).unwrap_err().to_string();
        for name in ["t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"] {
            assert!(text.contains(&format!("{name}.gz, {name}")), "{text}");
        }
    }

    #[test]
    fn different_numbers_of_labels_and_images_are_refused() {
        let folder = complete();
        std::fs::write(folder.path().join("train-labels.idx1-ubyte"), labels(4)).unwrap();
        let text = from_folder(folder.path()).unwrap_err().to_string();
        assert!(text.contains("holds 3 images but"), "{text}");
        assert!(text.contains("train-labels.idx1-ubyte holds 4 labels"), "{text}");
    }

    #[cfg(not(feature = "download"))]
    #[test]
    fn without_the_feature_the_error_names_the_folder_and_the_command() {
        let text = super::downloaded().unwrap_err().to_string();
        assert!(text.contains("needs the feature `download`"), "{text}");
        assert!(text.contains("--data-dir DIR or BURN_DP_DATA"), "{text}");
        assert!(text.ends_with("`cargo xtask train mnist --download`"), "{text}");
    }
}
