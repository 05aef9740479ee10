//! The IDX files of MNIST and Fashion-MNIST, plain or compressed with gzip.
//!
//! The reader is strict: header, length and labels of a file must follow the format exactly, so
//! that a truncated download cannot cause a wrong accuracy.
//!
//! # References
//!
//! Y. LeCun, C. Cortes, C. Burges: The MNIST database of handwritten digits, "File formats".

use std::io::{BufRead, Read};
use std::path::Path;

use super::{CLASSES, DataError, PIXELS, SIDE, file};

/// Magic number of a file of images: unsigned bytes in three dimensions.
pub const IMAGES_MAGIC: u32 = 0x0000_0803;

/// Magic number of a file of labels: unsigned bytes in one dimension.
pub const LABELS_MAGIC: u32 = 0x0000_0801;

/// Reads a file of images of 28 × 28 pixels.
///
/// # Errors
///
/// Returns [`DataError::Damaged`] if the file is not a file of images of this size, ends early, has
/// bytes after its last image, or holds no image, and [`DataError::Io`] if it cannot be read.
pub fn read_images(path: &Path) -> Result<Vec<[u8; PIXELS]>, DataError> {
    images(path, file::open(path)?)
}

/// Reads the content of a file of images of 28 × 28 pixels.
///
/// # Arguments
///
/// - `name`: the file, for messages
///
/// # Errors
///
/// Returns the errors of [`read_images`].
pub fn images_of(name: &str, content: impl BufRead) -> Result<Vec<[u8; PIXELS]>, DataError> {
    images(Path::new(name), file::unpacked(Path::new(name), content)?)
}

fn images(path: &Path, reader: impl Read) -> Result<Vec<[u8; PIXELS]>, DataError> {
    let mut file = IdxFile::new(path, reader, IMAGES_MAGIC)?;
    let count = file.dimension()?;
    let (rows, columns) = (file.dimension()?, file.dimension()?);
    if (rows, columns) != (SIDE, SIDE) {
        let reason = format!("the images are {rows} x {columns} pixels, expected {SIDE} x {SIDE}");
        return Err(file.damaged(reason));
    }
    let pixels = file.items(count, PIXELS, "images")?;
    let (images, _) = pixels.as_chunks::<PIXELS>();
    Ok(images.to_vec())
}

/// Reads a file of labels from 0 to 9.
///
/// # Errors
///
/// Returns [`DataError::Damaged`] if the file is not a file of labels, ends early, has bytes after
/// its last label, holds no label, or a label is greater than 9, and [`DataError::Io`] if it cannot
/// be read.
pub fn read_labels(path: &Path) -> Result<Vec<u8>, DataError> {
    labels(path, file::open(path)?)
}

/// Reads the content of a file of labels from 0 to 9.
///
/// # Arguments
///
/// - `name`: the file, for messages
///
/// # Errors
///
/// Returns the errors of [`read_labels`].
pub fn labels_of(name: &str, content: impl BufRead) -> Result<Vec<u8>, DataError> {
    labels(Path::new(name), file::unpacked(Path::new(name), content)?)
}

fn labels(path: &Path, reader: impl Read) -> Result<Vec<u8>, DataError> {
    let mut file = IdxFile::new(path, reader, LABELS_MAGIC)?;
    let count = file.dimension()?;
    let labels = file.items(count, 1, "labels")?;
    match labels.iter().position(|&label| usize::from(label) >= CLASSES) {
        Some(index) => {
            let reason =
                format!("label {index} is {}, expected 0 to {}", labels[index], CLASSES - 1);
            Err(file.damaged(reason))
        }
        None => Ok(labels),
    }
}

/// An open file, positioned after its magic number.
struct IdxFile<'a, R> {
    path: &'a Path,
    reader: R,
}

impl<'a, R: Read> IdxFile<'a, R> {
    fn new(path: &'a Path, reader: R, magic: u32) -> Result<Self, DataError> {
        let mut file = Self { path, reader };
        let found = file.word()?;
        if found == magic {
            return Ok(file);
        }
        let kind = |magic| match magic {
            IMAGES_MAGIC => " (images)",
            LABELS_MAGIC => " (labels)",
            _ => "",
        };
        Err(file.damaged(format!(
            "the magic number is {found:#010x}{}, expected {magic:#010x}{}",
            kind(found),
            kind(magic)
        )))
    }

    fn damaged(&self, reason: String) -> DataError {
        DataError::Damaged { path: self.path.into(), reason }
    }

    fn word(&mut self) -> Result<u32, DataError> {
        let mut bytes = [0; 4];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => Ok(u32::from_be_bytes(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.damaged("the file ends inside its header".into()))
            }
            Err(error) => Err(file::unreadable(self.path, error)),
        }
    }

    fn dimension(&mut self) -> Result<usize, DataError> {
        self.word().map(|word| word as usize)
    }

    /// Reads `count` items of `size` bytes, after which the file must end.
    fn items(&mut self, count: usize, size: usize, what: &str) -> Result<Vec<u8>, DataError> {
        if count == 0 {
            return Err(self.damaged(format!("the header announces no {what}")));
        }
        // Grows with the content, because a header alone must not reserve memory.
        let expected = count as u64 * size as u64;
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(expected).read_to_end(&mut bytes);
        read.map_err(|error| file::unreadable(self.path, error))?;
        if (bytes.len() as u64) < expected {
            return Err(self.damaged(format!(
                "the header announces {count} {what} ({expected} bytes) but only {} bytes follow",
                bytes.len()
            )));
        }
        match self.reader.read(&mut [0]) {
            Ok(0) => Ok(bytes),
            Ok(_) => Err(self.damaged(format!("more bytes follow after the {count} {what}"))),
            Err(error) => Err(file::unreadable(self.path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::path::PathBuf;

    use flate2::{Compression, write::GzEncoder};
    use tempfile::TempDir;

    use super::*;

    fn header(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn images(count: u32, bytes: usize) -> Vec<u8> {
        let mut file = header(&[IMAGES_MAGIC, count, 28, 28]);
        file.extend((0..bytes).map(|i| (i % 251) as u8));
        file
    }

    fn labels(labels: &[u8]) -> Vec<u8> {
        [header(&[LABELS_MAGIC, labels.len() as u32]), labels.to_vec()].concat()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn file(content: &[u8]) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content).unwrap();
        (folder, path)
    }

    fn images_error(content: &[u8]) -> String {
        let (_folder, path) = file(content);
        read_images(&path).unwrap_err().to_string()
    }

    fn labels_error(content: &[u8]) -> String {
        let (_folder, path) = file(content);
        read_labels(&path).unwrap_err().to_string()
    }

    #[test]
    fn plain_and_compressed_files_read_alike() {
        let plain = images(2, 2 * PIXELS);
        for content in [plain.clone(), gzip(&plain)] {
            let (_folder, path) = file(&content);
            let read = read_images(&path).unwrap();
            assert_eq!(images_of("images", &*content).unwrap(), read);
            assert_eq!(read.len(), 2);
            assert_eq!(read[0][..3], [0, 1, 2]);
            assert_eq!(read[1][0], (PIXELS % 251) as u8);
        }
        for content in [labels(&[5, 0, 9]), gzip(&labels(&[5, 0, 9]))] {
            let (_folder, path) = file(&content);
            assert_eq!(read_labels(&path).unwrap(), [5, 0, 9]);
            assert_eq!(labels_of("labels", &*content).unwrap(), [5, 0, 9]);
        }
    }

    #[test]
    fn a_file_of_the_other_kind_is_recognized() {
        let text = images_error(&labels(&[1]));
        assert!(text.contains("0x00000801 (labels), expected 0x00000803 (images)"), "{text}");
        assert!(images_error(b"<html>not found</html>").contains("the magic number is 0x3c68746d"));
    }

    #[test]
    fn a_truncated_file_is_damaged() {
        let text = images_error(&images(2, 2 * PIXELS - 1));
        assert!(text.contains("2 images (1568 bytes) but only 1567 bytes follow"), "{text}");
        assert!(text.ends_with("download it again"), "{text}");
        assert!(images_error(b"").contains("ends inside its header"));
        assert!(images_error(&header(&[IMAGES_MAGIC, 2])).contains("ends inside its header"));
        let mut compressed = gzip(&images(2, 2 * PIXELS));
        compressed.truncate(compressed.len() - 12);
        assert!(images_error(&compressed).contains("ends early"));
    }

    #[test]
    fn a_flipped_bit_in_a_compressed_file_is_damage() {
        let mut compressed = gzip(&images(2, 2 * PIXELS));
        let checksum = compressed.len() - 6;
        compressed[checksum] ^= 1;
        let text = images_error(&compressed);
        assert!(text.contains("compressed data is damaged"), "{text}");
    }

    #[test]
    fn bytes_after_the_last_item_are_refused() {
        let text = images_error(&images(1, PIXELS + 1));
        assert!(text.contains("more bytes follow after the 1 images"), "{text}");
    }

    #[test]
    fn images_of_another_size_are_refused() {
        let mut content = header(&[IMAGES_MAGIC, 1, 32, 28]);
        content.extend([0; 32 * 28]);
        let text = images_error(&content);
        assert!(text.contains("32 x 28 pixels, expected 28 x 28"), "{text}");
    }

    #[test]
    fn a_label_over_nine_is_named_with_its_index() {
        let text = labels_error(&labels(&[1, 2, 10]));
        assert!(text.contains("label 2 is 10, expected 0 to 9"), "{text}");
    }

    #[test]
    fn a_file_without_items_is_refused() {
        assert!(labels_error(&labels(&[])).contains("announces no labels"));
    }

    #[test]
    fn a_header_alone_reserves_no_memory() {
        let text = images_error(&header(&[IMAGES_MAGIC, u32::MAX, 28, 28]));
        assert!(text.contains("only 0 bytes follow"), "{text}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_labels(&folder.path().join("absent")).unwrap_err();
        assert!(matches!(error, DataError::Io { .. }), "{error}");
        assert!(error.to_string().contains("absent"));
    }
}
