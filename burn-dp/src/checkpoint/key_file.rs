//! The file with the key of a run, separate from its checkpoints.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::folder::{create, private_options, remove, sync_parent, write, write_at};
use super::log_lines::{self, Tail, checked, split_tail};
use crate::DpError;
use crate::optim::engine::damaged;
use crate::optim::releases::{KeyStorage, Releases};

/// Version of the format. Other versions are refused.
const FORMAT: u32 = 1;

/// The name of the file in a folder of checkpoints that records that the key was erased.
pub(super) const ERASED: &str = "key-erased";

/// The file with the key of a run.
///
/// # Privacy
///
/// Whoever reads it can subtract the noise of the run. On Unix it has mode 0600; on Windows it has
/// the access rights of its folder. It is overwritten before it is removed, but a file system with
/// copies (snapshots, a data journal, the blocks of a solid-state disk) may keep the old bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    run: u64,
    key: String,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// What a file with a key contains.
enum Found {
    Nothing,
    /// Part of a key, because writing or erasing it was interrupted.
    CutOff,
    Key(Content),
}

impl KeyFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// Returns the file with the key of the run in `folder`.
    ///
    /// # Arguments
    ///
    /// - `given`: the path that the user gave, if there is one
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if none was given and the folder has no name, and
    /// [`DpError::Io`] if the path is empty or the working directory is unknown.
    pub(super) fn locate(given: Option<&Path>, folder: &Path) -> Result<Self, DpError> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| DpError::io(path, error));
        if let Some(path) = given {
            // The program may change its working directory before it erases the key.
            return Ok(Self { path: absolute(path)? });
        }
        let absolute = absolute(folder)?;
        let mut parts = absolute.components();
        let Some(Component::Normal(name)) = parts.next_back() else {
            return Err(DpError::invalid(
                "folder",
                format!(
                    "{} has no name from which the file of the key could be named; give the file \
                     with `Checkpointer::with_key_file`",
                    folder.display()
                ),
            ));
        };
        let mut name = name.to_os_string();
        name.push(".key");
        Ok(Self { path: parts.as_path().join(name) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Records where the key is stored, for the statement.
    pub(super) fn record_storage(self, releases: &mut Releases) {
        let storage = match self.is_exposed() {
            true => KeyStorage::ExposedFile,
            false => KeyStorage::File,
        };
        releases.set_key_storage(storage, Some(self.path));
    }

    /// Stores the key of the run `run`. Returns whether the file is new.
    ///
    /// # Arguments
    ///
    /// - `abandoned`: whether a run is known to have ended before its first checkpoint, so that its
    ///   key has no use
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file has the key of another run, and [`DpError::Io`]
    /// if it cannot be written.
    pub(super) fn store(
        &self,
        run: u64,
        key: &str,
        abandoned: impl FnOnce(u64) -> bool,
    ) -> Result<bool, DpError> {
        match self.read()? {
            Found::Nothing => {}
            Found::CutOff => self.erase()?,
            Found::Key(found) if found.run == run => return Ok(false),
            Found::Key(found) if abandoned(found.run) => self.erase()?,
            Found::Key(_) => {
                return Err(DpError::saved_state(format!(
                    "{} has the key of another run; if the checkpoints of that run were deleted, \
                     delete the key as well (what the run released stays spent); otherwise give \
                     this run another folder, or its own key by `Checkpointer::with_key_file`",
                    self.path.display()
                )));
            }
        }
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            create(folder)?;
        }
        let content = Content { format: FORMAT, run, key: key.to_string() };
        let line = Zeroizing::new(log_lines::line(&content)?);
        if let Err(error) = write(&self.path, line.as_bytes()) {
            // An incomplete key has no use.
            let _ = self.erase();
            return Err(error);
        }
        sync_parent(&self.path)?;
        Ok(true)
    }

    /// Returns the key of the run `run`, or `None` if it was erased when the run ended.
    ///
    /// # Arguments
    ///
    /// - `folder`: the folder of the checkpoints
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file is missing or damaged, or has another key.
    pub(super) fn load(
        &self,
        folder: &Path,
        run: u64,
    ) -> Result<Option<Zeroizing<String>>, DpError> {
        match self.read() {
            Ok(Found::Key(mut content)) if content.run == run => {
                Ok(Some(Zeroizing::new(std::mem::take(&mut content.key))))
            }
            _ if erased_run(folder) == Some(run) => Ok(None),
            Ok(Found::Key(_)) => Err(DpError::saved_state(format!(
                "{} has the key of another run; restore the key of this run (a program of your own \
                 can name another file with `Checkpointer::with_key_file`)",
                self.path.display()
            ))),
            Ok(Found::CutOff) => Err(damaged(&self.path, "it is cut off")),
            Ok(Found::Nothing) => Err(DpError::saved_state(format!(
                "the key {} is missing, without which the run cannot continue; restore the file (a \
                 program of your own can name another one with `Checkpointer::with_key_file`)",
                self.path.display()
            ))),
            Err(error) => Err(error),
        }
    }

    /// Erases the key if it is the key of the run `run`, or an incomplete one.
    pub(super) fn erase_of(&self, run: u64) -> Result<(), DpError> {
        match self.read()? {
            Found::Key(content) if content.run != run => Ok(()),
            Found::Nothing => Ok(()),
            _ => self.erase(),
        }
    }

    /// Overwrites the key and removes the file, if it exists.
    pub(super) fn erase(&self) -> Result<(), DpError> {
        let failed = |error| DpError::io(&self.path, error);
        let length = match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed)?.len(),
        };
        let mut file = private_options().write(true).open(&self.path).map_err(failed)?;
        // Even a full disk has the space of the existing file.
        let overwritten = write_at(&mut file, 0, &vec![0; length as usize]);
        drop(file);
        remove(&self.path)?;
        sync_parent(&self.path)?;
        overwritten.map_err(failed)
    }

    /// Returns whether users other than the owner can read the file.
    fn is_exposed(&self) -> bool {
        #[cfg(unix)]
        if let Ok(found) = fs::metadata(&self.path) {
            return std::os::unix::fs::MetadataExt::mode(&found) & 0o077 != 0;
        }
        false
    }

    fn read(&self) -> Result<Found, DpError> {
        let mut bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            read => read.map_err(|error| DpError::io(&self.path, error))?,
        };
        let found = self.parse(&bytes);
        bytes.zeroize();
        found
    }

    fn parse(&self, bytes: &[u8]) -> Result<Found, DpError> {
        let (complete, tail) = split_tail(bytes);
        let is_cut = complete == 0 && matches!(tail, Tail::None | Tail::CutOff);
        // A key is overwritten with zeros from its beginning.
        if is_cut || bytes.first() == Some(&0) {
            return Ok(Found::CutOff);
        }
        let text = std::str::from_utf8(bytes).ok().map(str::trim_end).and_then(checked);
        let content = text.and_then(|json| serde_json::from_str::<Content>(json).ok());
        match content.filter(|content| content.format == FORMAT) {
            Some(content) => Ok(Found::Key(content)),
            None => Err(damaged(&self.path, "it is not a key of this version")),
        }
    }
}

/// Returns the run in `folder` whose key was erased, if there is one.
pub(super) fn erased_run(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join(ERASED)).ok()?;
    u64::from_str_radix(text.trim_end(), 16).ok()
}

/// Writes in `folder` that the key of the run `run` was erased.
pub(super) fn mark_erased(folder: &Path, run: u64) -> Result<(), DpError> {
    if erased_run(folder) == Some(run) {
        return Ok(());
    }
    let path = folder.join(ERASED);
    remove(&path)?;
    write(&path, format!("{run:016x}\n").as_bytes())?;
    sync_parent(&path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // Sharp edge: the blocks of the file are overwritten, not only its name removed.
    #[test]
    fn an_erased_key_is_overwritten_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["run.key", "other-name"].map(|name| folder.path().join(name));
        let file = KeyFile::new(&path);
        assert!(file.store(7, &"ab".repeat(32), |_| false).unwrap());
        fs::hard_link(&path, &other).unwrap();
        let before = fs::read(&other).unwrap();
        file.erase_of(8).unwrap();
        assert_eq!(fs::read(&other).unwrap(), before);
        file.erase_of(7).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read(&other).unwrap(), vec![0; before.len()]);
    }
}
