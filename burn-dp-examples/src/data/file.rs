//! Opening of files that may be compressed with gzip, and search for them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::DataError;

/// Opens a file, plain or compressed.
///
/// # Errors
///
/// Returns [`DataError::Io`] if it cannot be opened.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>, DataError> {
    let file = File::open(path).map_err(|source| DataError::Io { path: path.into(), source })?;
    Ok(Box::new(unpacked(path, BufReader::new(file))?))
}

/// Returns the content of a file, plain or compressed with gzip.
///
/// # Errors
///
/// Returns [`DataError::Io`] if it cannot be read and [`DataError::Damaged`] if it cannot be
/// unpacked.
pub fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let mut content = Vec::new();
    let read = open(path)?.read_to_end(&mut content);
    read.map_err(|source| unreadable(path, source))?;
    Ok(content)
}

/// Returns a reader of the content of a file, plain or compressed.
///
/// # Errors
///
/// Returns [`DataError::Io`] if it cannot be read.
pub(super) fn unpacked<'a>(
    path: &Path,
    mut file: impl BufRead + 'a,
) -> Result<Box<dyn Read + 'a>, DataError> {
    let io = |source| DataError::Io { path: path.into(), source };
    // Detected from the first bytes rather than the name, because browsers unpack or rename
    // downloads.
    let compressed = file.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]);
    if compressed { Ok(Box::new(MultiGzDecoder::new(file))) } else { Ok(Box::new(file)) }
}

/// Returns the error of a read. Errors of the decompressor are damage.
pub(super) fn unreadable(path: &Path, source: std::io::Error) -> DataError {
    let reason = match source.kind() {
        std::io::ErrorKind::UnexpectedEof => "the file ends early".into(),
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => {
            format!("the compressed data is damaged ({source})")
        }
        _ => return DataError::Io { path: path.into(), source },
    };
    DataError::Damaged { path: path.into(), reason }
}

/// Returns the first path that exists: each name in the folder, then in its subfolder `subfolder`.
///
/// # Errors
///
/// Returns [`DataError::Missing`] with the names, and `wanted`, which the folder should hold.
pub(super) fn find(
    folder: &Path,
    subfolder: &str,
    names: &[String],
    wanted: &'static str,
) -> Result<PathBuf, DataError> {
    let inside = folder.join(subfolder);
    let places = [folder, inside.as_path()];
    let mut paths = places.iter().flat_map(|place| names.iter().map(|name| place.join(name)));
    paths.find(|path| path.exists()).ok_or_else(|| DataError::Missing {
        folder: folder.into(),
        tried: names.to_vec(),
        wanted,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_is_found_in_the_folder_first_and_then_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a".to_string(), "b".to_string()];
        let found = || find(folder.path(), "sub", &names, "the files");
        let text = found().unwrap_err().to_string();
        assert!(text.contains("holds none of a, b; give the folder with the files"), "{text}");
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/a"), "").unwrap();
        assert_eq!(found().unwrap(), folder.path().join("sub/a"));
        std::fs::write(folder.path().join("b"), "").unwrap();
        assert_eq!(found().unwrap(), folder.path().join("b"));
    }
}
