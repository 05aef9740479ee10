//! CIFAR-10 in its binary version, from its folder or its archive.
//!
//! # References
//!
//! A. Krizhevsky: Learning multiple layers of features from tiny images, 2009.
//! The binary version: <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::{CLASSES, DataError, ImageBatcher, ImageDataset, ImageItem, Splits, archive, file};

/// Name of the data set in reports.
pub const NAME: &str = "cifar10";

/// Maximum number of files of the training set.
const BATCHES: usize = 5;

/// Bytes of an image: red, green and blue, row by row.
const PIXELS: usize = 3 * 32 * 32;

/// Bytes of a record: the label, then the image.
const RECORD: usize = 1 + PIXELS;

/// Folder inside the archive.
const FOLDER: &str = "cifar-10-batches-bin";

/// What the user has to provide.
const WANTED: &str = "the binary version of CIFAR-10 (cifar-10-binary.tar.gz, or its files \
                      data_batch_1.bin to data_batch_5.bin and test_batch.bin)";

/// Reads `data_batch_1.bin` and the following files, and `test_batch.bin`.
///
/// `path` is the folder with these files, a folder that contains it as `cifar-10-batches-bin` or
/// `cifar10`, a folder with the archive `cifar-10-binary.tar.gz`, or an archive. A training set
/// with fewer than five files can also be read.
///
/// # Errors
///
/// Returns [`DataError::Missing`] if nothing is found or a file is missing between others, and
/// [`DataError::Damaged`] if a file is damaged.
pub fn read(path: &Path) -> Result<Splits<ImageBatcher>, DataError> {
    if path.is_file() {
        return from_archive(path);
    }
    let first = ["data_batch_1.bin".to_string(), format!("{FOLDER}/data_batch_1.bin")];
    let archive = ["cifar-10-binary.tar.gz".to_string(), "cifar-10-binary.tar".to_string()];
    let names = [first, archive].concat();
    let found = file::find(path, NAME, &names, WANTED)?;
    match found.parent().filter(|_| found.ends_with("data_batch_1.bin")) {
        Some(folder) => from_folder(folder),
        None => from_archive(&found),
    }
}

fn from_folder(folder: &Path) -> Result<Splits<ImageBatcher>, DataError> {
    splits(folder, |name| {
        let path = folder.join(name);
        if !path.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let read = file::open(&path)?.read_to_end(&mut bytes);
        read.map_err(|error| file::unreadable(&path, error))?;
        Ok(Some((path, bytes)))
    })
}

fn from_archive(path: &Path) -> Result<Splits<ImageBatcher>, DataError> {
    let mut files = archive::files(path, |name| name.ends_with("_batch.bin") || batch_of(name))?;
    splits(path, |name| {
        let position = files.iter().position(|(file, _)| file.rsplit('/').next() == Some(name));
        Ok(position.map(|position| {
            let (name, bytes) = files.swap_remove(position);
            (path.join(name), bytes)
        }))
    })
}

fn batch_of(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| name.starts_with("data_batch_"))
}

/// Returns the splits, from the contents of the files by name.
fn splits(
    place: &Path,
    mut content: impl FnMut(&str) -> Result<Option<(PathBuf, Vec<u8>)>, DataError>,
) -> Result<Splits<ImageBatcher>, DataError> {
    let missing = |name: String| DataError::Missing {
        folder: place.into(),
        tried: vec![name],
        wanted: WANTED,
    };
    let mut train = Vec::new();
    let mut absent: Option<String> = None;
    for number in 1..=BATCHES {
        let name = format!("data_batch_{number}.bin");
        match (content(&name)?, &absent) {
            (Some(_), Some(before)) => return Err(missing(before.clone())),
            (Some((path, bytes)), None) => train.extend(records(&path, &bytes)?),
            (None, _) => absent = absent.or(Some(name)),
        }
    }
    if let (true, Some(name)) = (train.is_empty(), absent) {
        return Err(missing(name));
    }
    let name = "test_batch.bin";
    let (path, bytes) = content(name)?.ok_or_else(|| missing(name.into()))?;
    Ok(Splits {
        name: NAME.into(),
        classes: CLASSES,
        encoder: ImageBatcher::CIFAR10,
        train: ImageDataset::new(train),
        test: ImageDataset::new(records(&path, &bytes)?),
    })
}

/// Returns the records of one file.
fn records(path: &Path, bytes: &[u8]) -> Result<Vec<ImageItem>, DataError> {
    let damaged = |reason| Err(DataError::Damaged { path: path.into(), reason });
    if bytes.is_empty() {
        return damaged("the file is empty".into());
    }
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() {
        return damaged(format!(
            "the file ends at byte {} inside record {}: a record has {RECORD} bytes",
            bytes.len(),
            records.len()
        ));
    }
    if let Some(index) = records.iter().position(|record| usize::from(record[0]) >= CLASSES) {
        return damaged(format!(
            "the label at byte {} is {}, expected 0 to {}",
            index * RECORD,
            records[index][0],
            CLASSES - 1
        ));
    }
    let item =
        |record: &[u8; RECORD]| ImageItem { image: record[1..].into(), label: record[0].into() };
    Ok(records.iter().map(item).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataset::Dataset;
    use tempfile::TempDir;

    use super::*;

    /// A file whose record `i` has label `first + i` and that value in all pixels.
    fn batch(first: u8, records: u8) -> Vec<u8> {
        (first..first + records).flat_map(|label| vec![label; RECORD]).collect()
    }

    fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        folder
    }

    fn error(files: &[(&str, Vec<u8>)]) -> String {
        read(folder(files).path()).unwrap_err().to_string()
    }

    #[test]
    fn folder_and_archive_hold_the_same_items() {
        let files = [
            ("cifar-10-batches-bin/data_batch_1.bin", batch(0, 2)),
            ("cifar-10-batches-bin/data_batch_2.bin", batch(2, 3)),
            ("cifar-10-batches-bin/test_batch.bin", batch(7, 1)),
        ];
        let plain = folder(&files);
        let splits = read(plain.path()).unwrap();
        let labels: Vec<_> = splits.train.items().iter().map(|item| item.label).collect();
        assert_eq!(labels, [0, 1, 2, 3, 4]);
        assert_eq!(splits.train.get(4).unwrap().image[..], [4; PIXELS]);
        assert_eq!((splits.test.len(), splits.test.get(0).unwrap().label), (1, 7));
        let inside = read(&plain.path().join("cifar-10-batches-bin")).unwrap();
        assert_eq!(inside.train, splits.train);

        let packed = folder(&[("cifar-10-binary.tar.gz", archive::tests::archive(&files, true))]);
        for path in [packed.path().into(), packed.path().join("cifar-10-binary.tar.gz")] {
            let archived = read(&path).unwrap();
            assert_eq!((&archived.train, &archived.test), (&splits.train, &splits.test));
        }
    }

    #[test]
    fn missing_files_are_named() {
        let text = error(&[]);
        assert!(text.contains("none of data_batch_1.bin") && text.contains(".tar.gz"), "{text}");
        let text = error(&[("data_batch_1.bin", batch(0, 1))]);
        assert!(text.contains("none of test_batch.bin"), "{text}");
        let gap = [
            ("data_batch_1.bin", batch(0, 1)),
            ("data_batch_3.bin", batch(0, 1)),
            ("test_batch.bin", batch(0, 1)),
        ];
        assert!(error(&gap).contains("none of data_batch_2.bin"), "{}", error(&gap));
    }

    #[test]
    fn damage_is_reported_with_its_byte() {
        let mut short = batch(0, 2);
        short.pop();
        let text = error(&[("data_batch_1.bin", short)]);
        assert!(text.contains("data_batch_1.bin: the file ends at byte 6145"), "{text}");
        assert!(text.contains("inside record 1"), "{text}");
        let text = error(&[("data_batch_1.bin", batch(9, 2))]);
        assert!(text.contains("the label at byte 3073 is 10, expected 0 to 9"), "{text}");
        assert!(error(&[("data_batch_1.bin", Vec::new())]).contains("the file is empty"));
    }
}
