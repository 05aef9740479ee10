//! Film reviews of IMDB, positive and negative, from the folder `aclImdb` or its archive.
//!
//! # References
//!
//! A. Maas, R. Daly, P. Pham, D. Huang, A. Ng, C. Potts: Learning word vectors for sentiment
//! analysis, 2011; <https://ai.stanford.edu/~amaas/data/sentiment/>.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{DataError, Splits, TextBatcher, TextDataset, TextItem, Vocabulary, archive, file};

/// Name of the data set in reports.
pub const NAME: &str = "imdb";

/// The classes, in the order of their labels.
const CLASSES: [&str; 2] = ["neg", "pos"];

/// The splits.
const SPLITS: [&str; 2] = ["train", "test"];

/// What the user has to provide.
const WANTED: &str = "the folder aclImdb or its archive aclImdb_v1.tar.gz";

/// A review: its split, its number in the file name, its class, its text.
struct Review {
    split: usize,
    number: u32,
    label: u16,
    text: String,
}

/// Reads the labeled reviews, `{train,test}/{pos,neg}/NUMBER_RATING.txt`.
///
/// `path` is the folder `aclImdb`, a folder that contains it or the archive, also in a subfolder
/// `imdb`, or an archive. The classes alternate, so the beginning of a split contains both.
///
/// # Arguments
///
/// - `vocabulary`: numbers of words; not collected from these reviews
/// - `length`: number of words of a review that are kept
///
/// # Errors
///
/// Returns [`DataError::Missing`] if nothing is found, [`DataError::Layout`] if a class of a split
/// is empty, and [`DataError::Damaged`] if the archive is damaged.
pub fn read(
    path: &Path,
    vocabulary: &Vocabulary,
    length: usize,
) -> Result<Splits<TextBatcher>, DataError> {
    let found = locate(path)?;
    let mut reviews = if found.is_dir() { from_folder(&found)? } else { from_archive(&found)? };
    for (split, class) in SPLITS.iter().flat_map(|split| CLASSES.map(|class| (split, class))) {
        let of_class = |review: &Review| {
            SPLITS[review.split] == *split && CLASSES[usize::from(review.label)] == class
        };
        if !reviews.iter().any(of_class) {
            let reason = format!("there is no review {split}/{class}/NUMBER_RATING.txt; {WANTED}");
            return Err(DataError::Layout { path: found, reason: reason + " has them" });
        }
    }
    reviews.sort_by_key(|review| (review.split, review.number, review.label));
    let first_test = reviews.partition_point(|review| review.split == 0);
    let items = |reviews: &[Review]| {
        let item = |review: &Review| TextItem {
            tokens: vocabulary.encode(&review.text).into(),
            label: review.label,
        };
        TextDataset::new(reviews.par_iter().map(item).collect())
    };
    Ok(Splits {
        name: NAME.into(),
        classes: CLASSES.len(),
        encoder: TextBatcher { length, vocabulary: vocabulary.len() },
        train: items(&reviews[..first_test]),
        test: items(&reviews[first_test..]),
    })
}

/// Returns the folder with the splits, or the archive.
fn locate(path: &Path) -> Result<PathBuf, DataError> {
    if path.is_file() || SPLITS.iter().all(|split| path.join(split).is_dir()) {
        return Ok(path.into());
    }
    let names = ["aclImdb", "aclImdb_v1.tar.gz", "aclImdb.tar.gz", "aclImdb_v1.tar"];
    file::find(path, NAME, &names.map(String::from), WANTED)
}

fn from_folder(folder: &Path) -> Result<Vec<Review>, DataError> {
    let mut paths = Vec::new();
    for (split, class) in SPLITS.iter().flat_map(|split| CLASSES.map(|class| (split, class))) {
        let folder = folder.join(split).join(class);
        let io = |source| DataError::Io { path: folder.clone(), source };
        for entry in std::fs::read_dir(&folder).map_err(io)? {
            paths.push(entry.map_err(io)?.path());
        }
    }
    let reviews = paths.into_par_iter().filter_map(|path| {
        let read = || std::fs::read(&path);
        let bytes = |source| DataError::Io { path: path.clone(), source };
        let relative = path.strip_prefix(folder).unwrap_or(&path);
        let (split, label, number) = place(&relative.to_string_lossy().replace('\\', "/"))?;
        Some(read().map_err(bytes).map(|bytes| review(split, label, number, &bytes)))
    });
    reviews.collect()
}

fn from_archive(path: &Path) -> Result<Vec<Review>, DataError> {
    let files = archive::files(path, |name| place(name).is_some())?;
    let review = |(name, bytes): (String, Vec<u8>)| {
        place(&name).map(|(split, label, number)| review(split, label, number, &bytes))
    };
    Ok(files.into_iter().filter_map(review).collect())
}

fn review(split: usize, label: u16, number: u32, bytes: &[u8]) -> Review {
    Review { split, number, label, text: String::from_utf8_lossy(bytes).into_owned() }
}

/// Returns split, label and number of a review, from the end of its path; `None` for other files.
fn place(path: &str) -> Option<(usize, u16, u32)> {
    let mut parts = path.rsplit('/');
    let (file, class, split) = (parts.next()?, parts.next()?, parts.next()?);
    let split = SPLITS.iter().position(|&name| name == split)?;
    let label = CLASSES.iter().position(|&name| name == class)?;
    let (number, _rating) = file.strip_suffix(".txt")?.split_once('_')?;
    Some((split, label as u16, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataset::Dataset;
    use tempfile::TempDir;

    use super::*;

    const REVIEWS: [(&str, &str); 6] = [
        ("aclImdb/train/pos/1_9.txt", "good"),
        ("aclImdb/train/neg/0_2.txt", "bad bad"),
        ("aclImdb/train/pos/0_7.txt", "very good"),
        ("aclImdb/test/neg/10_1.txt", "awful"),
        ("aclImdb/test/pos/2_10.txt", "fine"),
        ("aclImdb/train/unsup/5_0.txt", "without a label"),
    ];

    fn vocabulary() -> Vocabulary {
        Vocabulary::listed(["good", "bad", "very", "fine"].map(String::from))
    }

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn folder_and_archive_hold_the_same_reviews_in_turns_of_the_classes() {
        let plain = folder(&REVIEWS);
        let splits = read(plain.path(), &vocabulary(), 8).unwrap();
        let train: Vec<_> = splits.train.items().iter().map(|i| (i.label, &i.tokens[..])).collect();
        assert_eq!(train, [(0, &[3, 3][..]), (1, &[4, 2]), (1, &[2])]);
        let test: Vec<_> = splits.test.items().iter().map(|item| item.label).collect();
        assert_eq!(test, [1, 0]);
        assert_eq!(splits.encoder, TextBatcher { length: 8, vocabulary: 6 });

        let inside = read(&plain.path().join("aclImdb"), &vocabulary(), 8).unwrap();
        assert_eq!((&inside.train, &inside.test), (&splits.train, &splits.test));
        let files = REVIEWS.map(|(name, text)| (name, text.as_bytes().to_vec()));
        let bytes = archive::tests::archive(&files, true);
        let packed = tempfile::tempdir().unwrap();
        std::fs::create_dir(packed.path().join("imdb")).unwrap();
        let path = packed.path().join("imdb/aclImdb_v1.tar.gz");
        std::fs::write(&path, bytes).unwrap();
        for path in [packed.path(), &path] {
            let archived = read(path, &vocabulary(), 8).unwrap();
            assert_eq!((&archived.train, &archived.test), (&splits.train, &splits.test));
        }
    }

    #[test]
    fn missing_files_and_classes_are_named() {
        let empty = tempfile::tempdir().unwrap();
        let text = read(empty.path(), &vocabulary(), 8).unwrap_err().to_string();
        assert!(text.contains("none of aclImdb, aclImdb_v1.tar.gz"), "{text}");
        let files = REVIEWS.map(|(name, text)| (name, text.as_bytes().to_vec()));
        let bytes = archive::tests::archive(&files[..3], false);
        let path = empty.path().join("reviews.tar");
        std::fs::write(&path, bytes).unwrap();
        let text = read(&path, &vocabulary(), 8).unwrap_err().to_string();
        assert!(text.contains("no review test/neg/NUMBER_RATING.txt"), "{text}");
    }

    #[test]
    fn files_with_other_names_are_skipped() {
        assert_eq!(place("aclImdb/train/pos/12_9.txt"), Some((0, 1, 12)));
        for name in ["train/pos/readme.txt", "train/unsup/1_0.txt", "pos/1_9.txt", "train/pos/1_9"]
        {
            assert_eq!(place(name), None, "{name}");
        }
        let splits = read(folder(&REVIEWS).path(), &vocabulary(), 8).unwrap();
        assert_eq!(splits.train.len(), 3);
    }
}
