//! Atomic checkpoints of a private run: the model, the optimizer, and the whole privacy state.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;

use super::folder::{create, remove, rename, sync, write};
use super::key_file::{ERASED, KeyFile, erased_run, mark_erased};
use super::log_file::{LogFile, RELEASES, UnusedLog, is_same_file};
use super::owned::{self, Kind};
use super::saved_run::{PRIVACY, SavedRun};
use super::{Checkpoint, fail_point};
use crate::DpError;
use crate::device_read::blocking;
use crate::optim::DpOptimizer;
use crate::optim::buffers::Extent;
use crate::optim::engine::PrivacyEngine;
use crate::optim::releases::Releases;

/// Writes and finds the checkpoints of one run in a folder that belongs to it.
///
/// Each checkpoint is a folder `checkpoint-STEP` with the records of the model, the optimizer, a
/// [`Sparsifier`](crate::optim::Sparsifier) and a [`WeightAverage`](crate::optim::WeightAverage) if
/// there are any, and `privacy.json`, the whole privacy state except the key. It is written under
/// another name and renamed when it is complete, and then older ones are removed. A run that is
/// killed at any time therefore leaves a complete checkpoint behind, or none if it was killed
/// during the first. A second checkpoint of the same step replaces the first, because the model, an
/// average, or the state of the clipping policy may have changed. Other files and folders, even
/// those with similar names, are left unchanged. A file in place of the key or the log that no run
/// wrote is an error.
///
/// # Privacy
///
/// All noise and all draws follow from the key of the run. It is in a separate file, by default
/// `FOLDER.key` next to the folder, so that the folder can be published with the results. On Unix
/// the file has mode 0600; on Windows it has the access rights of the folder that contains it,
/// which in a user's own folder belong to that user. Protect it like the training data, and erase
/// it with [`DpOptimizer::forget_key`] when the run is over. The privacy statement names the
/// location of the key.
///
/// The folder also contains `releases.log`. From the first checkpoint on, every release is on disk
/// there before its noise is drawn, so returning to a checkpoint does not restore any budget: the
/// ledger of a resumed run has everything that was released. The steps that were lost are repeated,
/// with the same draws and the same noise. If a repeated step equals the released one, bit for bit,
/// nothing new is released; otherwise it is rejected. [`Checkpoint::skip_lost_steps`] continues
/// after the lost steps instead. A run has one log, so it saves in one folder. Save once before the
/// first step, so that no release is lost with the process.
///
/// The log is locked while a program uses it, so that no second program continues the run at the
/// same time. On a file system without locks, the statement says so.
///
/// A copy or backup of the folder lacks every release made after it was taken.
#[derive(Clone, Debug)]
pub struct Checkpointer {
    folder: PathBuf,
    key: Option<PathBuf>,
}

impl Checkpointer {
    /// Creates a store in `folder`, which is created with the first checkpoint.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), key: None }
    }

    /// Sets the file of the key. Default: the folder's name with `.key` at its end, next to the
    /// folder. A run has one key file: while it lasts, [`save`](Self::save) rejects another one.
    pub fn with_key_file(self, path: impl Into<PathBuf>) -> Self {
        Self { key: Some(path.into()), ..self }
    }

    /// Saves the state after the last step, even if this step was saved before.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Io`] with the file that could not be written; the previous checkpoint
    /// still exists then, and the run can be saved again. Returns [`DpError::SavedState`] if the
    /// folder, the log or the key file belongs to another run or another program,
    /// [`DpError::InvalidState`] if the log or the key of this run is elsewhere, and
    /// [`DpError::ChangedBuffer`] if a value of the model that is not trained changed during the
    /// run.
    pub fn save<M: Module>(&self, model: &M, optim: &DpOptimizer) -> Result<(), DpError> {
        let verified = optim.engine.buffers.verify(model, Extent::Whole);
        blocking(verified, "DpOptimizer::to_record_async")?;
        let saved = blocking(SavedRun::of_optimizer(optim), "DpOptimizer::to_record_async")?;
        let saved = saved.with_model(model)?;
        let target = self.write(&saved, Some(&optim.engine))?;
        owned::discard_where(&self.folder, |folder, _| folder != target);
        Ok(())
    }

    /// Stores all further releases of the run in the log of this folder.
    fn attach_log(&self, engine: &PrivacyEngine) -> Result<(), DpError> {
        let unused = match self.complete()?.is_empty() {
            true => UnusedLog::Replace,
            false => UnusedLog::Refuse,
        };
        LogFile::attach(&mut *engine.releases()?, &self.log(), unused)
    }

    /// Writes a checkpoint and returns its folder.
    ///
    /// The first checkpoint of a run is written in this order: its files under another name, the
    /// key, the log, its final name. If writing stops before the log has its header, a new run can
    /// use the folder; if it stops later, [`latest`](Self::latest) completes the checkpoint.
    ///
    /// # Arguments
    ///
    /// - `engine`: the engine whose future releases are stored; `None` if they already are
    pub(crate) fn write(
        &self,
        saved: &SavedRun,
        engine: Option<&PrivacyEngine>,
    ) -> Result<PathBuf, DpError> {
        let (step, run) = (saved.next_step(), saved.run().run);
        create(&self.folder)?;
        if let Some(existing) = self.after(step)
            && owned::run(existing.folder()) != Some(run)
        {
            return Err(DpError::saved_state(format!(
                "{} belongs to another run or another program; give every run its own folder",
                existing.folder().display()
            )));
        }
        let partial = tempfile::Builder::new()
            .prefix(&owned::partial(step))
            .tempdir_in(&self.folder)
            .map_err(|error| DpError::io(&self.folder, error))?;
        owned::mark(partial.path(), run)?;
        for (name, bytes) in saved.parts() {
            write(&partial.path().join(name), bytes)?;
            fail_point::within_checkpoint(step);
        }
        let json = saved.to_json()?;
        write(&partial.path().join(PRIVACY), &json)?;
        sync(partial.path())?;
        self.attach(saved, engine)?;

        self.finish_replacement(step)?;
        let target = self.at(step);
        let first = if target.exists() { self.replacement(step) } else { target.clone() };
        // Complete from here on, even if it does not get its final name.
        rename(&partial.keep(), &first)?;
        sync(&self.folder)?;
        self.finish_replacement(step)?;
        Ok(target)
    }

    /// Stores the key and all further releases of a run without a log.
    #[cfg(feature = "train")]
    pub(crate) fn begin(&self, saved: &SavedRun, engine: &PrivacyEngine) -> Result<(), DpError> {
        create(&self.folder)?;
        self.attach(saved, Some(engine))
    }

    /// Stores the key and attaches the log.
    fn attach(&self, saved: &SavedRun, engine: Option<&PrivacyEngine>) -> Result<(), DpError> {
        let (run, file) = (saved.run().run, self.key()?);
        if let (Some(engine), Some(_)) = (engine, saved.key()) {
            self.check_key_file(&file, &*engine.releases()?)?;
        }
        let is_new = match saved.key() {
            Some(key) => file.store(run, key, |run| self.has_abandoned(run))?,
            None => mark_erased(&self.folder, run).map(|()| false)?,
        };
        let Some(engine) = engine else { return Ok(()) };
        if let Err(error) = self.attach_log(engine) {
            if is_new {
                file.erase()?;
            }
            return Err(error);
        }
        file.record_storage(&mut *engine.releases()?);
        Ok(())
    }

    /// Rejects a second file for the key of a run, because [`DpOptimizer::forget_key`] erases one.
    fn check_key_file(&self, file: &KeyFile, releases: &Releases) -> Result<(), DpError> {
        let Some(stored) = &releases.key.1 else { return Ok(()) };
        // A run whose log is in another folder is rejected with the log.
        let is_elsewhere = |log: PathBuf| !is_same_file(&log, &self.log());
        if is_same_file(stored, file.path()) || releases.path().is_some_and(is_elsewhere) {
            return Ok(());
        }
        Err(DpError::state(format!(
            "the key of the run is in {}, and a second copy in {} would not be erased with it; \
             give the first file to `Checkpointer::with_key_file`",
            stored.display(),
            file.path().display()
        )))
    }

    /// Returns whether a run ended in this folder before its first release or checkpoint. A run
    /// whose process has the log has not ended, even if it still writes its first checkpoint.
    fn has_abandoned(&self, run: u64) -> bool {
        if LogFile::is_in_use(&self.log()) {
            return false;
        }
        let folders = owned::list(&self.folder).unwrap_or_default();
        if folders.iter().any(|(_, kind)| *kind == Kind::Complete) {
            return false;
        }
        let log = self.log();
        LogFile::unused_run(&log) == Some(run)
            || (!log.exists() || LogFile::has_no_header(&log))
                && folders.iter().any(|(folder, _)| owned::run(folder) == Some(run))
    }

    /// Returns whether a process, this one or another, takes the steps of the run in this folder.
    /// On a file system without locks it is never known.
    pub fn is_in_use(&self) -> bool {
        LogFile::is_in_use(&self.log())
    }

    /// Returns the file of the key.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if none was set and the folder has no name.
    pub fn key_file(&self) -> Result<PathBuf, DpError> {
        Ok(self.key()?.path().to_path_buf())
    }

    fn key(&self) -> Result<KeyFile, DpError> {
        KeyFile::locate(self.key.as_deref(), &self.folder)
    }

    fn log(&self) -> PathBuf {
        self.folder.join(RELEASES)
    }

    /// Returns the folder of the checkpoint after `step` steps.
    fn at(&self, step: u64) -> PathBuf {
        self.folder.join(owned::name(step))
    }

    /// Returns the folder of a replacement until the checkpoint that it replaces is removed.
    fn replacement(&self, step: u64) -> PathBuf {
        self.folder.join(owned::replacement(step))
    }

    /// Removes the checkpoint that has a replacement, which gets its name. At any moment one of the
    /// two exists and is complete.
    fn finish_replacement(&self, step: u64) -> Result<(), DpError> {
        let (old, new) = (self.at(step), self.replacement(step));
        if !new.exists() {
            return Ok(());
        }
        if old.exists() {
            owned::discard(&old)?;
        }
        rename(&new, &old)?;
        sync(&self.folder)
    }

    fn checkpoint(&self, folder: &Path) -> Checkpoint {
        Checkpoint::new(folder, self.key.clone())
    }

    /// Returns the newest complete checkpoint after `step` steps, if there is one.
    pub fn after(&self, step: u64) -> Option<Checkpoint> {
        let mut folders = [self.replacement(step), self.at(step)].into_iter();
        folders.find(|folder| folder.exists()).map(|folder| self.checkpoint(&folder))
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the newest complete checkpoint, if there is one. Call this before a run starts: if
    /// there is none, a new run may use the folder. Completes the first checkpoint of a run that
    /// was killed at the end of writing it.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Io`] if the folder exists and cannot be read, and [`DpError::SavedState`]
    /// if there is no checkpoint but a log with releases, from a run whose checkpoints were lost.
    pub fn latest(&self) -> Result<Option<Checkpoint>, DpError> {
        if let Some(folder) = self.complete()?.pop() {
            return Ok(Some(self.checkpoint(&folder)));
        }
        // Nobody else can use it until the end of this function.
        let Some(abandoned) = LogFile::abandoned(&self.log())? else { return Ok(None) };
        if erased_run(&self.folder) == Some(abandoned.run) {
            // The run is over, but removing it was interrupted.
            self.remove_log()?;
            return Ok(None);
        }
        for (partial, _) in owned::list(&self.folder)? {
            let checkpoint = self.checkpoint(&partial);
            if owned::run(&partial) == Some(abandoned.run)
                && let Ok(saved) = checkpoint.open()
            {
                let target = self.at(saved.next_step());
                rename(&partial, &target)?;
                sync(&self.folder)?;
                return Ok(Some(self.checkpoint(&target)));
            }
        }
        Err(DpError::saved_state(format!(
            "{} has {} releases of a run, and there is no checkpoint to resume it from; restore \
             the newest checkpoint of that run from a backup, or give the new run its own folder",
            self.log().display(),
            abandoned.releases
        )))
    }

    /// Removes everything that this store wrote for a run that is over: the key, which is erased
    /// first, the checkpoints, the log, and the folder, if nothing else is in it. Drop the
    /// optimizer of the run first.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Io`] if a file cannot be removed. Calling it again continues the removal.
    pub fn remove_run(self) -> Result<(), DpError> {
        let folders = owned::list(&self.folder)?;
        let run = folders.iter().find_map(|(folder, _)| owned::run(folder));
        if let Some(run) = run.or_else(|| erased_run(&self.folder)) {
            mark_erased(&self.folder, run)?;
            self.key()?.erase_of(run)?;
        }
        for (folder, _) in folders {
            owned::discard(&folder)?;
        }
        self.remove_log()?;
        // Fails if the folder has other files.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    fn remove_log(&self) -> Result<(), DpError> {
        if LogFile::is_log(&self.log())? {
            remove(&self.log())?;
        }
        remove(&self.folder.join(ERASED))
    }

    /// Returns the folders of the complete checkpoints, in the order of their steps.
    fn complete(&self) -> Result<Vec<PathBuf>, DpError> {
        let folders = owned::list(&self.folder)?.into_iter();
        Ok(folders.filter(|(_, kind)| *kind == Kind::Complete).map(|(folder, _)| folder).collect())
    }

    /// Removes what a killed save left behind.
    #[cfg(feature = "train")]
    pub(crate) fn remove_partial(&self) {
        owned::discard_where(&self.folder, |_, kind| kind == Kind::Partial);
    }

    /// Removes the checkpoint after `step` steps, if there is one.
    #[cfg(feature = "train")]
    pub(crate) fn remove(&self, step: u64) {
        let folders = [self.at(step), self.replacement(step)];
        owned::discard_where(&self.folder, |folder, _| folders.iter().any(|old| old == folder));
    }
}
