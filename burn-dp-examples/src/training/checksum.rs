//! Checksums of private data, and the key under which they are stored.

use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::path::PathBuf;

use super::TrainError;

/// Returns a checksum of `data`, which is the same in another run on machines with words of the
/// same length.
pub(super) fn checksum(data: &(impl Hash + ?Sized)) -> String {
    let mut checksum = Checksum(blake3::Hasher::new());
    data.hash(&mut checksum);
    checksum.0.finalize().to_string()
}

/// The checksum of what is hashed.
struct Checksum(blake3::Hasher);

impl Hasher for Checksum {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Not used: it has fewer bits than the checksum.
    fn finish(&self) -> u64 {
        0
    }
}

/// Returns the key under which settings that depend on private data are stored. It is derived from
/// the key of the run in the file `path`.
///
/// There is none without the file, or if the file was cut off while it was written or erased: it is
/// one line, which is overwritten with zeros from its beginning.
pub(super) fn settings_key(path: PathBuf) -> Result<Option<[u8; 32]>, TrainError> {
    match std::fs::read(&path) {
        Ok(key) if key.ends_with(b"\n") && !key.starts_with(&[0]) => {
            Ok(Some(blake3::derive_key("burn-dp 2026 settings of a run", &key)))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TrainError::Io { path, source }),
    }
}
