//! Resuming from a checkpoint.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Bytes;

use super::key_file::KeyFile;
use super::log_file::RELEASES;
use super::owned::{self, Kind};
#[cfg(feature = "train")]
use super::saved_run::{MODEL, load_model};
use super::saved_run::{PRIVACY, PrivacyState, SavedRun};
use crate::DpError;
use crate::device_read::blocking;
use crate::optim::engine::LostSteps;
use crate::optim::engine::PrivacyEngine;
use crate::optim::{DpOptimizer, PrivacyPlan};

/// A complete checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    /// The file of the key, if it was set.
    key: Option<PathBuf>,
    lost: LostSteps,
}

impl Checkpoint {
    pub(super) fn new(folder: &Path, key: Option<PathBuf>) -> Self {
        Self { folder: folder.to_path_buf(), key, lost: LostSteps::Repeat }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Continues after the last release of the run instead of repeating the steps that followed the
    /// checkpoint: with the model of the checkpoint, and the draws and noise of the following
    /// steps.
    ///
    /// # Privacy
    ///
    /// The skipped steps stay in the ledger, because they were released.
    pub fn skip_lost_steps(self) -> Self {
        Self { lost: LostSteps::Skip, ..self }
    }

    /// Checks, without continuing the run, that all files are complete and that the key is the one
    /// of the run, or was erased at its end.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`restore`](Self::restore) about files and key.
    pub fn verify(&self) -> Result<(), DpError> {
        self.open().map(|_| ())
    }

    /// Continues the run: T steps, a checkpoint, and T further steps equal 2T steps, bit for bit.
    ///
    /// # Arguments
    ///
    /// - `plan`: a plan with the numbers of the run; its own key is not used
    /// - `inner`: the optimizer, configured as before
    /// - `model`: a model of the same architecture
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if a file is damaged or has another version, if a number of
    /// `plan` differs from the run, if the key is missing, or if the log of releases is missing,
    /// older than the checkpoint, of another run, or in use: spent budget stays spent. Returns
    /// [`DpError::Io`] if another file is missing.
    ///
    /// A run whose key was [erased](DpOptimizer::forget_key) is restored for its model and its
    /// statement; it takes no more steps.
    pub fn restore<M: Module>(
        &self,
        plan: PrivacyPlan,
        inner: ModuleOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), DpError> {
        self.restore_into(plan.optimizer(inner), model)
    }

    /// Continues the run with a new optimizer, whose options are kept.
    pub(crate) fn restore_into<M: Module>(
        &self,
        optim: DpOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), DpError> {
        let saved = self.open()?;
        let model = saved.load_model(&self.privacy(), model)?;
        let mut optim = saved.resume(optim, (&self.privacy(), &self.log()), self.lost)?;
        self.resumed(&optim.engine)?;
        blocking(optim.engine.buffers.begin(&model), "DpOptimizer::load_record_from_store")?;
        Ok((optim, model))
    }

    /// Continues the privacy of the run in `engine`, without model and optimizer.
    #[cfg(feature = "train")]
    pub(crate) fn resume_engine(
        &self,
        saved: &SavedRun,
        engine: PrivacyEngine,
    ) -> Result<PrivacyEngine, DpError> {
        let engine = saved.resume_engine(engine, (&self.privacy(), &self.log()), self.lost)?;
        self.resumed(&engine)?;
        Ok(engine)
    }

    /// Records the location of the key, and removes the remains of a killed process: nobody else
    /// uses the folder, because the log is locked.
    fn resumed(&self, engine: &PrivacyEngine) -> Result<(), DpError> {
        self.key()?.record_storage(&mut *engine.releases()?);
        owned::discard_where(self.run_folder(), |_, kind| kind == Kind::Partial);
        Ok(())
    }

    /// Returns the folder of the run.
    fn run_folder(&self) -> &Path {
        self.folder.parent().unwrap_or(Path::new("."))
    }

    fn key(&self) -> Result<KeyFile, DpError> {
        KeyFile::locate(self.key.as_deref(), self.run_folder())
    }

    /// Returns the path of the privacy state.
    pub(crate) fn privacy(&self) -> PathBuf {
        self.folder.join(PRIVACY)
    }

    fn log(&self) -> PathBuf {
        self.folder.with_file_name(RELEASES)
    }

    /// Reads only the privacy state.
    fn read_state(&self) -> Result<PrivacyState, DpError> {
        let path = self.privacy();
        let bytes = fs::read(&path).map_err(|error| DpError::io(&path, error))?;
        PrivacyState::parse(&path, &bytes)
    }

    fn read(&self, name: &str) -> Result<Bytes, DpError> {
        let path = self.folder.join(name);
        let bytes = fs::read(&path).map_err(|error| DpError::io(&path, error))?;
        Ok(Bytes::from_bytes_vec(bytes))
    }

    /// Reads and verifies all files.
    pub(crate) fn open(&self) -> Result<SavedRun, DpError> {
        let saved = SavedRun::read(self.read_state()?, &self.privacy(), |name| self.read(name))?;
        let key = self.key()?.load(self.run_folder(), saved.run().run)?;
        Ok(saved.with_key(key))
    }

    /// Reads and verifies one file.
    #[cfg(feature = "train")]
    pub(crate) fn part(&self, name: &str) -> Result<Bytes, DpError> {
        let bytes = self.read(name)?;
        self.read_state()?.verify(&self.privacy(), name, &bytes)?;
        Ok(bytes)
    }

    /// Returns `model` with the parameters of the checkpoint.
    #[cfg(feature = "train")]
    pub(crate) fn load_model<M: Module>(&self, model: M) -> Result<M, DpError> {
        load_model(&self.privacy(), self.part(MODEL)?, model)
    }
}
