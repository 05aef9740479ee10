//! Going on from a checkpoint.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use zeroize::Zeroize;

use crate::DpError;
use crate::checkpoint::state::PrivacyState;
use crate::checkpoint::store::AVERAGE;
use crate::checkpoint::store::{MODEL, PRIVACY, RELEASES, damaged, fingerprint, record_error};
use crate::optim::{DpOptimizer, PrivacyPlan};
#[cfg(feature = "train")]
use crate::optim::{PrivacyEngine, WeightAverage};

/// A complete checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    skip_lost_steps: bool,
}

impl Checkpoint {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), skip_lost_steps: false }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Goes on after the last release of the run instead of making the steps again that followed the
    /// checkpoint: with the model of the checkpoint, and the draws and the noise of the steps after.
    ///
    /// # Privacy
    ///
    /// The skipped steps stay in the ledger: they were released.
    pub fn skip_lost_steps(self) -> Self {
        Self { skip_lost_steps: true, ..self }
    }

    /// Continues the run: 2T steps are T steps, a checkpoint, and T steps more, bit for bit.
    ///
    /// # Arguments
    ///
    /// - `plan`: a plan with the same numbers as that of the run; its own key is not used
    /// - `inner`: the optimizer, configured as before
    /// - `model`: a model of the same architecture
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when a file is damaged or of another version, when a number of `plan` is
    /// not that of the run, and when the log of releases is missing, older than the checkpoint, of
    /// another run or in use: what was spent stays spent. [`DpError::Io`] when another file is missing.
    pub fn restore<M: Module>(
        &self,
        plan: PrivacyPlan,
        inner: ModuleOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), DpError> {
        self.restore_into(plan.optimizer(inner), model)
    }

    /// The same with a new optimizer, whose options are kept.
    pub(crate) fn restore_into<M: Module>(
        &self,
        optim: DpOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), DpError> {
        let files = self.open()?;
        let model = files.load_model(model)?;
        let resumed = optim.resumed(
            &files.state,
            (&self.folder.join(PRIVACY), &files.log()),
            self.skip_lost_steps,
            |name| files.read(name),
        )?;
        Ok((resumed, model))
    }

    /// Reads the privacy state, which knows what the other files should be.
    pub(crate) fn open(&self) -> Result<CheckpointFiles<'_>, DpError> {
        let path = self.folder.join(PRIVACY);
        let mut bytes = fs::read(&path).map_err(|error| DpError::io(&path, error))?;
        let state = PrivacyState::read(&path, &bytes);
        bytes.zeroize();
        Ok(CheckpointFiles { checkpoint: self, state: state? })
    }
}

/// A checkpoint whose privacy state was read.
pub(crate) struct CheckpointFiles<'a> {
    checkpoint: &'a Checkpoint,
    state: PrivacyState,
}

impl CheckpointFiles<'_> {
    pub(crate) fn into_state(self) -> PrivacyState {
        self.state
    }

    fn log(&self) -> PathBuf {
        self.checkpoint.folder.with_file_name(RELEASES)
    }

    /// Gives `model` the parameters of the checkpoint.
    pub(crate) fn load_model<M: Module>(&self, model: M) -> Result<M, DpError> {
        let path = self.checkpoint.folder.join(MODEL);
        let record = ModuleRecord::from_bytes(self.read(MODEL)?)
            .map_err(|error| record_error(&path, error))?;
        model.try_load_record(record).map_err(|error| record_error(&path, error))
    }

    /// Whether nothing was released before the checkpoint.
    #[cfg(feature = "train")]
    pub(crate) fn is_beginning(&self) -> bool {
        self.state.next_step == 0
    }

    /// Whether the checkpoint has a file of that name.
    #[cfg(feature = "train")]
    pub(crate) fn has(&self, name: &str) -> bool {
        self.state.files.contains_key(name)
    }

    /// The privacy of the run, without model and optimizer.
    #[cfg(feature = "train")]
    pub(crate) fn engine(&self, plan: PrivacyPlan) -> Result<PrivacyEngine, DpError> {
        let path = self.checkpoint.folder.join(PRIVACY);
        self.state.resume((&path, &self.log()), plan, self.checkpoint.skip_lost_steps)
    }

    /// The average of the weights, of a checkpoint that [has](Self::has) one.
    #[cfg(feature = "train")]
    pub(crate) fn weight_average(&self) -> Result<WeightAverage, DpError> {
        let found = WeightAverage::from_bytes(&self.read(AVERAGE)?);
        let path = self.checkpoint.folder.join(AVERAGE);
        found.ok_or_else(|| damaged(&path, "it is of another version"))
    }

    /// The content of a file, as it was written.
    pub(crate) fn read(&self, name: &str) -> Result<Bytes, DpError> {
        let path = self.checkpoint.folder.join(name);
        let bytes = fs::read(&path).map_err(|error| DpError::io(&path, error))?;
        if self.state.files.get(name) != Some(&fingerprint(&bytes)) {
            return Err(damaged(&path, "its content is not what the checkpoint wrote"));
        }
        Ok(Bytes::from_bytes_vec(bytes))
    }
}
