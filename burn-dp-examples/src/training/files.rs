//! Atomic writes: a file is complete or absent.

use std::path::Path;

use burn::module::Module;
use serde::Serialize;

use super::TrainError;
use crate::incomplete::{Incomplete, PREFIX};

/// A complete file that does not have its final name yet.
#[derive(Debug)]
pub struct Complete(Incomplete);

impl Complete {
    /// Writes a file, which gets its final name later.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if the folder cannot be written to.
    pub fn write(path: &Path, content: &[u8]) -> Result<Self, TrainError> {
        let io = |source| TrainError::Io { path: path.into(), source };
        Incomplete::write(path, content).map(Self).map_err(io)
    }

    /// Renames the file to its final name, replacing any earlier file with this name.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if the folder cannot be written to.
    pub fn publish(self) -> Result<(), TrainError> {
        let path = self.0.path().to_path_buf();
        self.0.publish().map_err(|source| TrainError::Io { path, source })
    }
}

/// Writes a file and replaces any earlier file with this name.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the folder cannot be written to; the earlier file is then
/// unchanged.
pub fn write(path: &Path, content: &[u8]) -> Result<(), TrainError> {
    Complete::write(path, content)?.publish()
}

/// Writes a value as indented JSON.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the file cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| TrainError::Io { path: path.into(), source: error.into() })?;
    text.push('\n');
    write(path, text.as_bytes())
}

/// Writes the parameters of a model as a Burn record, which gets its final name later.
///
/// # Errors
///
/// Returns [`TrainError::Record`] if the record cannot be created, and [`TrainError::Io`] if the
/// file cannot be written.
pub(super) fn record_model(path: &Path, model: impl Module) -> Result<Complete, TrainError> {
    let record = model.into_record().into_bytes();
    let record = record.map_err(|error| TrainError::Record {
        path: path.into(),
        reason: format!("the model cannot be recorded: {error}"),
    })?;
    Complete::write(path, &record)
}

/// Removes a file if it exists.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the file exists and cannot be removed.
pub fn remove(path: &Path) -> Result<(), TrainError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(TrainError::Io { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

/// Removes the incomplete files that a killed process left in a folder.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the folder cannot be read or a file cannot be removed.
pub fn remove_incomplete(folder: &Path) -> Result<(), TrainError> {
    let io = |source| TrainError::Io { path: folder.into(), source };
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Writes a text.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the file cannot be written.
pub fn write_text(path: &Path, text: &str) -> Result<(), TrainError> {
    write(path, text.as_bytes())
}

/// Creates a folder and its parents.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if that is not possible.
pub fn make_folder(path: &Path) -> Result<(), TrainError> {
    std::fs::create_dir_all(path).map_err(|source| TrainError::Io { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::models::{Classifier, MlpConfig};

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_else_remains() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, b"a long first content").unwrap();
        write(&path, b"short").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_has_the_permissions_of_one_that_was_written_directly() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode =
            |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        std::fs::write(folder.path().join("directly"), "").unwrap();
        write(&folder.path().join("atomically"), b"").unwrap();
        assert_eq!(mode("atomically"), mode("directly"));
    }

    #[test]
    fn a_missing_folder_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("none/file"), b"").unwrap_err().to_string();
        assert!(error.contains("file"), "{error}");
    }

    #[test]
    fn a_written_model_scores_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let (path, device) = (folder.path().join("model.bpk"), Device::flex());
        let model = MlpConfig::new().init(&device);
        record_model(&path, model.clone()).unwrap().publish().unwrap();
        let loaded = MlpConfig::new().init(&device).try_load_file(&path).unwrap();
        let images = Tensor::ones([2, 1, 28, 28], &device);
        let (before, after) = (model.forward(images.clone()), loaded.forward(images));
        before.into_data().assert_eq(&after.into_data(), true);
    }
}
