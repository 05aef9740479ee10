//! Resuming from a checkpoint.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Bytes;
use zeroize::Zeroize;

use super::log_file::RELEASES;
#[cfg(feature = "train")]
use super::saved_run::{MODEL, load_model};
use super::saved_run::{PRIVACY, PrivacyState, SavedRun};
use crate::DpError;
use crate::optim::engine::LostSteps;
#[cfg(feature = "train")]
use crate::optim::engine::PrivacyEngine;
use crate::optim::{DpOptimizer, PrivacyPlan};

/// A complete checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    lost: LostSteps,
}

impl Checkpoint {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), lost: LostSteps::Repeat }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Continues after the last release of the run instead of repeating the steps that followed the
    /// checkpoint: with the model of the checkpoint, and the draws and the noise of the steps
    /// after.
    ///
    /// # Privacy
    ///
    /// The skipped steps stay in the ledger, because they were released.
    pub fn skip_lost_steps(self) -> Self {
        Self { lost: LostSteps::Skip, ..self }
    }

    /// Continues the run: T steps, a checkpoint and T further steps are 2T steps, bit for bit.
    ///
    /// # Arguments
    ///
    /// - `plan`: a plan with the numbers of the run; its own key is not used
    /// - `inner`: the optimizer, configured as before
    /// - `model`: a model of the same architecture
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if a file is damaged or of another version, if a number of
    /// `plan` differs from the run, and if the log of releases is missing, older than the
    /// checkpoint, of another run or in use: what was spent stays spent. Returns [`DpError::Io`] if
    /// another file is missing.
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
        Ok((saved.resume(optim, (&self.privacy(), &self.log()), self.lost)?, model))
    }

    /// Continues the privacy of the run in `engine`, without model and optimizer.
    #[cfg(feature = "train")]
    pub(crate) fn resume_engine(
        &self,
        saved: &SavedRun,
        engine: PrivacyEngine,
    ) -> Result<PrivacyEngine, DpError> {
        saved.resume_engine(engine, (&self.privacy(), &self.log()), self.lost)
    }

    /// Returns the path of the privacy state.
    pub(crate) fn privacy(&self) -> PathBuf {
        self.folder.join(PRIVACY)
    }

    fn log(&self) -> PathBuf {
        self.folder.with_file_name(RELEASES)
    }

    /// Reads the privacy state alone.
    pub(crate) fn read_state(&self) -> Result<PrivacyState, DpError> {
        let path = self.privacy();
        let mut bytes = fs::read(&path).map_err(|error| DpError::io(&path, error))?;
        let state = PrivacyState::parse(&path, &bytes);
        bytes.zeroize();
        state
    }

    fn read(&self, name: &str) -> Result<Bytes, DpError> {
        let path = self.folder.join(name);
        let bytes = fs::read(&path).map_err(|error| DpError::io(&path, error))?;
        Ok(Bytes::from_bytes_vec(bytes))
    }

    /// Reads and verifies all files.
    pub(crate) fn open(&self) -> Result<SavedRun, DpError> {
        SavedRun::read(self.read_state()?, &self.privacy(), |name| self.read(name))
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
