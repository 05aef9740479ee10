//! Checkpoints of a private run: model, optimizer and the whole privacy state, together or not at
//! all.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use zeroize::Zeroize;

use super::folder::{sync, write};
use super::log_file::{LogFile, RELEASES, UnusedLog};
use super::saved_run::{PRIVACY, SavedRun};
use super::{Checkpoint, fail_point};
use crate::DpError;
use crate::optim::DpOptimizer;
use crate::optim::engine::PrivacyEngine;

const PREFIX: &str = "checkpoint-";
const PARTIAL: &str = "partial-";
/// Follows the name of a complete checkpoint that replaces another one of the same step. The names
/// sort so that it is the newer one.
const REPLACEMENT: &str = "-new";

/// Writes and finds the checkpoints of one run in a folder that belongs to it.
///
/// Each checkpoint is a folder `checkpoint-STEP` with the records of the model, of the optimizer,
/// of a [`Sparsifier`](crate::optim::Sparsifier) and of a
/// [`WeightAverage`](crate::optim::WeightAverage) if there are any, and `privacy.json`, the whole
/// privacy state. It is written under another name and renamed when it is complete, then the older
/// ones are removed: a run that is killed at any time leaves a complete checkpoint behind, or none
/// if it was killed during the first. A second checkpoint of the same step replaces the first: the
/// model, an average or the state of the clipping policy may have changed.
///
/// # Privacy
///
/// `privacy.json` contains the key of the run, from which all noise and all draws follow. It is
/// readable by its owner alone; keep it as you keep the training data, and delete it when the run
/// is over.
///
/// The folder also contains `releases.log`. From the first checkpoint on, every release is on disk
/// there before its noise is drawn, so returning to a checkpoint gives no budget back: the ledger
/// of a resumed run has everything that was released. The steps that were lost are repeated, with
/// the same draws and the same noise. If a repeated step equals the released one, bit for bit,
/// nothing new is released; otherwise it is refused. [`Checkpoint::skip_lost_steps`] continues
/// after the lost steps instead. A run has one log, so it saves in one folder.
///
/// A copy of the folder is as old as the copy: it lacks the releases that followed, and so does a
/// backup.
#[derive(Clone, Debug)]
pub struct Checkpointer {
    folder: PathBuf,
}

impl Checkpointer {
    /// Creates a store in `folder`, which is created with the first checkpoint.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Saves the state after the last step, also if this step was saved before.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Io`] with the file that could not be written; the previous checkpoint
    /// still exists then. Returns [`DpError::SavedState`] if the folder belongs to another run, and
    /// [`DpError::InvalidState`] if the log of this run is elsewhere.
    pub fn save<M: Module>(&self, model: &M, optim: &DpOptimizer) -> Result<(), DpError> {
        let saved = SavedRun::of_optimizer(optim)?.with_model(model)?;
        self.attach_log(&optim.engine)?;
        let target = self.write(&saved)?;
        self.remove_all_but(&target);
        Ok(())
    }

    /// Stores all further releases of the run in the log of this folder.
    pub(crate) fn attach_log(&self, engine: &PrivacyEngine) -> Result<(), DpError> {
        fs::create_dir_all(&self.folder).map_err(|error| DpError::io(&self.folder, error))?;
        let unused = match self.complete()?.is_empty() {
            true => UnusedLog::Replace,
            false => UnusedLog::Refuse,
        };
        LogFile::attach(&mut *engine.releases()?, &self.folder.join(RELEASES), unused)
    }

    /// Writes a checkpoint and returns its folder.
    pub(crate) fn write(&self, saved: &SavedRun) -> Result<PathBuf, DpError> {
        let step = saved.next_step();
        let partial = tempfile::Builder::new()
            .prefix(PARTIAL)
            .tempdir_in(&self.folder)
            .map_err(|error| DpError::io(&self.folder, error))?;
        for (name, bytes) in saved.parts() {
            write(&partial.path().join(name), bytes)?;
            fail_point::within_checkpoint(step);
        }
        let mut json = saved.to_json()?;
        let written = write(&partial.path().join(PRIVACY), &json);
        json.zeroize();
        written?;

        if let Some(existing) = self.after(step)
            && !existing.read_state()?.run.is_same_run(saved.run())
        {
            return Err(DpError::saved_state(format!(
                "{} belongs to another run; give every run its own folder",
                existing.folder().display()
            )));
        }
        self.finish_replacement(step)?;
        let target = self.at(step);
        let first = if target.exists() { self.replacement(step) } else { target.clone() };
        fs::rename(partial.path(), &first).map_err(|error| DpError::io(&first, error))?;
        sync(&self.folder)?;
        self.finish_replacement(step)?;
        Ok(target)
    }

    /// Returns the folder of the checkpoint after `step` steps.
    fn at(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{step:020}"))
    }

    /// Returns the folder of a replacement until the checkpoint that it replaces is removed.
    fn replacement(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{step:020}{REPLACEMENT}"))
    }

    /// Removes the checkpoint that has a replacement, which gets its name. At any moment one of the
    /// two exists and is complete.
    fn finish_replacement(&self, step: u64) -> Result<(), DpError> {
        let (old, new) = (self.at(step), self.replacement(step));
        if !new.exists() {
            return Ok(());
        }
        self.remove_where(|folder, _| folder == old);
        fs::rename(&new, &old).map_err(|error| DpError::io(&old, error))?;
        sync(&self.folder)
    }

    /// Returns the newest complete checkpoint after `step` steps, if there is one.
    pub fn after(&self, step: u64) -> Option<Checkpoint> {
        let mut folders = [self.replacement(step), self.at(step)].into_iter();
        folders.find(|folder| folder.exists()).map(|folder| Checkpoint::new(&folder))
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the newest complete checkpoint, if there is one. Call this before a run begins: if
    /// there is none, a new run may use the folder.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Io`] if the folder exists and cannot be read, and [`DpError::SavedState`]
    /// if there is no checkpoint but a log with releases: of a run whose checkpoints were lost, or
    /// that was killed during the first of them.
    pub fn latest(&self) -> Result<Option<Checkpoint>, DpError> {
        match self.complete()?.pop() {
            Some(folder) => Ok(Some(Checkpoint::new(&folder))),
            None => {
                LogFile::refuse_without_checkpoint(&self.folder.join(RELEASES))?;
                Ok(None)
            }
        }
    }

    /// Returns the folders of the complete checkpoints, in the order of their steps.
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

    /// Removes the checkpoint after `step` steps, if there is one.
    #[cfg(feature = "train")]
    pub(crate) fn remove(&self, step: u64) {
        let folders = [self.at(step), self.replacement(step)];
        self.remove_where(|folder, _| folders.iter().any(|outdated| outdated == folder));
    }

    fn remove_where(&self, outdated: impl Fn(&Path, &str) -> bool) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for folder in entries.flatten().map(|entry| entry.path()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            if !outdated(&folder, &name) {
                continue;
            }
            // First renamed, so that an interrupted removal leaves no incomplete checkpoint behind.
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
