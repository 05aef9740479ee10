//! Checkpoints of a private run: model, optimizer and the whole privacy state, together or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::store::RecordError;
use burn::tensor::Bytes;
use zeroize::Zeroize;

use crate::DpError;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::release_log::ReleaseLog;
use crate::checkpoint::state::PrivacyState;
use crate::optim::DpOptimizer;
use crate::optim::engine::PrivacyEngine;

pub(crate) const MODEL: &str = "model.bpk";
pub(crate) const OPTIMIZER: &str = "optimizer.bpk";
pub(crate) const SPARSIFIER: &str = "sparsifier.bin";
pub(crate) const AVERAGE: &str = "average.bin";
pub(crate) const PRIVACY: &str = "privacy.json";
pub(crate) const RELEASES: &str = "releases.log";
const PREFIX: &str = "checkpoint-";
const PARTIAL: &str = "partial-";
/// Follows the name of a complete checkpoint that takes the place of another one of the same step. The names
/// sort so that it is the newer one.
const REPLACEMENT: &str = "-new";

/// Writes and finds the checkpoints of one run in a folder of its own.
///
/// Each checkpoint is a folder `checkpoint-STEP` with the model, the optimizer's state, those of a
/// [`Sparsifier`](super::Sparsifier) and of a [`WeightAverage`](super::WeightAverage) if there are any, and
/// `privacy.json`, the whole privacy state. It is written under another name and renamed when it is
/// complete, then the older ones are removed: a run that is killed at any time leaves a complete checkpoint
/// behind, or none if it was killed during the first. Saved again at the same step, a checkpoint takes the place
/// of the one before: the model, an average or what the clipping policy knows of public data may be another.
///
/// # Privacy
///
/// `privacy.json` contains the key of the run, from which all noise and all draws follow. It is
/// readable by its owner alone; keep it as you keep the training data, and delete it when the run is
/// over.
///
/// Beside the checkpoints stands `releases.log`. From the first checkpoint on, every release is on disk
/// there before its noise is drawn, so going back to a checkpoint gives no budget back: the ledger of a
/// resumed run has everything that was released. The steps that were made after the checkpoint and lost
/// are made again, with the same draws and the same noise. As long as they are what they were, bit for
/// bit, nothing new is released; a step that is not is refused. Then, or where the lost steps are not
/// wanted, [`Checkpoint::skip_lost_steps`] goes on after them. A run has one log, so it
/// saves in one folder.
///
/// A copy of a folder with its log is as old as the copy: neither it nor a backup knows of later releases.
#[derive(Clone, Debug)]
pub struct Checkpointer {
    folder: PathBuf,
}

impl Checkpointer {
    /// Checkpoints in `folder`, which is created when the first one is saved.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Saves the state after the last step, also where it was saved before.
    ///
    /// # Errors
    ///
    /// [`DpError::Io`] with the file that could not be written; the previous checkpoint is then still
    /// there. [`DpError::InvalidState`] if the folder is that of another run.
    pub fn save<M: Module>(&self, model: &M, optim: &DpOptimizer) -> Result<(), DpError> {
        self.log(&optim.engine)?;
        let mut files = vec![(MODEL, model.clone().into_record().into_bytes())];
        files.extend(optim.parts());
        let target = self.write(PrivacyState::capture(&optim.engine)?, files)?;
        self.remove_all_but(&target);
        Ok(())
    }

    /// Writes all releases of the run to the log of this folder from here on.
    pub(crate) fn log(&self, engine: &PrivacyEngine) -> Result<(), DpError> {
        fs::create_dir_all(&self.folder).map_err(|error| DpError::io(&self.folder, error))?;
        engine.log_to(&self.folder.join(RELEASES), self.complete()?.is_empty())
    }

    /// Writes a checkpoint of these files; gives its folder.
    pub(crate) fn write<'a>(
        &self,
        mut state: PrivacyState,
        files: impl IntoIterator<Item = (&'a str, Result<Bytes, RecordError>)>,
    ) -> Result<PathBuf, DpError> {
        let partial = tempfile::Builder::new()
            .prefix(PARTIAL)
            .tempdir_in(&self.folder)
            .map_err(|error| DpError::io(&self.folder, error))?;
        for (name, bytes) in files {
            let path = partial.path().join(name);
            let bytes = bytes.map_err(|error| record_error(&path, error))?;
            state.files.insert(name.to_string(), fingerprint(&bytes));
            write(&path, &bytes)?;
        }
        let path = partial.path().join(PRIVACY);
        let mut json = serde_json::to_vec_pretty(&state)
            .map_err(|error| DpError::io(&path, std::io::Error::other(error)))?;
        let written = write(&path, &json);
        json.zeroize();
        written?;

        let steps = state.next_step;
        if let Some(standing) = self.standing(steps)
            && Checkpoint::new(&standing).open()?.into_state().key != state.key
        {
            return Err(DpError::state(format!(
                "{} belongs to another run; give every run a folder of its own",
                standing.display()
            )));
        }
        self.finish_replacement(steps)?;
        let target = self.at(steps);
        let first = if target.exists() { self.replacement(steps) } else { target.clone() };
        fs::rename(partial.path(), &first).map_err(|error| DpError::io(&first, error))?;
        sync_folder(&self.folder)?;
        self.finish_replacement(steps)?;
        Ok(target)
    }

    /// Where the checkpoint after so many steps stands.
    fn at(&self, steps: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{steps:020}"))
    }

    /// Where another one of the same step stands until the first is gone.
    fn replacement(&self, steps: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{steps:020}{REPLACEMENT}"))
    }

    /// Removes the checkpoint that has a replacement, which gets its name. At any moment one of the two is
    /// there and complete.
    fn finish_replacement(&self, steps: u64) -> Result<(), DpError> {
        let (old, new) = (self.at(steps), self.replacement(steps));
        if !new.exists() {
            return Ok(());
        }
        self.remove_where(|folder, _| folder == old);
        fs::rename(&new, &old).map_err(|error| DpError::io(&old, error))?;
        sync_folder(&self.folder)
    }

    /// The folder of the newest complete checkpoint after so many steps, if there is one.
    fn standing(&self, steps: u64) -> Option<PathBuf> {
        [self.replacement(steps), self.at(steps)].into_iter().find(|folder| folder.exists())
    }

    /// The complete checkpoint after so many steps, if there is one.
    pub fn after(&self, steps: u64) -> Option<Checkpoint> {
        self.standing(steps).map(|folder| Checkpoint::new(&folder))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest complete checkpoint, if there is one. Ask before a run begins: without one, a new run may
    /// use the folder.
    ///
    /// # Errors
    ///
    /// [`DpError::Io`] if the folder exists and cannot be read. [`DpError::InvalidState`] if there is no
    /// checkpoint, and a log that knows of releases: of a run whose checkpoints were lost, or that was killed
    /// during the first of them.
    pub fn latest(&self) -> Result<Option<Checkpoint>, DpError> {
        match self.complete()?.pop() {
            Some(folder) => Ok(Some(Checkpoint::new(&folder))),
            None => {
                ReleaseLog::refuse_without_checkpoint(&self.folder.join(RELEASES))?;
                Ok(None)
            }
        }
    }

    /// Folders of the complete checkpoints, in the order of their steps.
    fn complete(&self) -> Result<Vec<PathBuf>, DpError> {
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        let entries =
            fs::read_dir(&self.folder).map_err(|error| DpError::io(&self.folder, error))?;
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| DpError::io(&self.folder, error))?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                folders.push(entry.path());
            }
        }
        folders.sort();
        Ok(folders)
    }

    /// Removes older checkpoints, and what a killed save left behind.
    fn remove_all_but(&self, kept: &Path) {
        self.remove_where(|folder, name| {
            folder != kept && (name.starts_with(PREFIX) || name.starts_with(PARTIAL))
        });
    }

    /// Removes what a killed save left behind.
    #[cfg(feature = "train")]
    pub(crate) fn remove_partial(&self) {
        self.remove_where(|_, name| name.starts_with(PARTIAL));
    }

    /// Removes the checkpoint after so many steps, if there is one.
    pub(crate) fn remove(&self, steps: u64) {
        let folders = [self.at(steps), self.replacement(steps)];
        self.remove_where(|folder, _| folders.iter().any(|outdated| outdated == folder));
    }

    fn remove_where(&self, outdated: impl Fn(&Path, &str) -> bool) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for folder in entries.flatten().map(|entry| entry.path()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            if !outdated(&folder, &name) {
                continue;
            }
            // Under a name that is not that of a complete checkpoint, whatever happens on the way.
            let partial = folder.with_file_name(format!("{PARTIAL}{name}"));
            let removed = match name.starts_with(PARTIAL) {
                true => fs::remove_dir_all(&folder),
                false => fs::rename(&folder, &partial).and_then(|()| fs::remove_dir_all(&partial)),
            };
            if let Err(error) = removed {
                log::warn!("{} contains a key and could not be removed: {error}", folder.display());
            }
        }
    }
}

/// The files of the model and of the optimizer.
pub(crate) fn records<M: Module>(
    model: &M,
    inner: &ModuleOptimizer,
) -> [(&'static str, Result<Bytes, RecordError>); 2] {
    [(MODEL, model.clone().into_record().into_bytes()), (OPTIMIZER, inner.into_bytes())]
}

/// Length and CRC-32.
pub(crate) fn fingerprint(bytes: &[u8]) -> (u64, u32) {
    (bytes.len() as u64, crc32fast::hash(bytes))
}

pub(crate) fn damaged(path: &Path, reason: impl std::fmt::Display) -> DpError {
    DpError::state(format!(
        "{} is damaged ({reason}); restore the file from a backup, or start a new run",
        path.display()
    ))
}

pub(crate) fn record_error(path: &Path, error: RecordError) -> DpError {
    DpError::state(format!("{}: {error}", path.display()))
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
) -> Result<T, DpError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(path, error))
}

/// Writes a file that only its owner can read, down to the disk.
fn write(path: &Path, bytes: &[u8]) -> Result<(), DpError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| DpError::io(path, error))
}

/// Makes a renamed entry of the folder last.
fn sync_folder(folder: &Path) -> Result<(), DpError> {
    if cfg!(unix) {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| DpError::io(folder, error))?;
    }
    Ok(())
}
