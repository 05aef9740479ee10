//! What a training run stores, and what it must not store.

use std::path::Path;

use burn::module::Module;
use burn::optim::ModuleOptimizer;

use super::key_location::key_among;
use super::logical_step::Ended;
use super::session::Session;
use crate::DpError;
use crate::checkpoint::SavedRun;
use crate::device_read::wait;
use crate::optim::buffers::Extent;
use crate::optim::engine::PrivacyEngine;

impl Session {
    /// Returns an error if the key of the run would be in the folder of the results.
    pub(super) fn key_among_results(&self, results: &Path) -> Option<DpError> {
        match self.checkpointer.as_ref()?.key_file() {
            Ok(key) => key_among(results, &key),
            Err(error) => Some(error),
        }
    }

    /// Ends the training with an error if a value of `model` that is not trained changed. Burn
    /// calls this before each validation, and every checkpoint follows a validation.
    pub(super) fn check_buffers<M: Module>(&self, model: &M) {
        let buffers = self.with_engine(|engine| engine.buffers.clone());
        if let Err(error) = wait(buffers.verify(model, Extent::Whole)) {
            self.fail(error);
        }
    }

    /// Saves a checkpoint and the log before the first release: the values that the dashboard
    /// reports in the first epoch must not be lost with the process.
    pub(super) fn save_beginning<M: Module>(
        &self,
        engine: &PrivacyEngine,
        model: &M,
        optim: &ModuleOptimizer,
    ) -> Result<(), DpError> {
        let Some(checkpointer) = &self.checkpointer else { return Ok(()) };
        if engine.next_step() > 0 || engine.own_releases() > 0 {
            return Ok(());
        }
        let saved = wait(SavedRun::of_engine(engine))?.with_optimizer(optim)?.with_model(model)?;
        checkpointer.write(&saved, Some(engine)).map(drop)
    }

    /// Returns the whole privacy state between two steps.
    pub(super) fn capture(&self) -> Result<SavedRun, DpError> {
        let state = self.state();
        if let Some(Ended::Failed(error)) = &state.ended
            && let DpError::ChangedBuffer { .. } = &**error
        {
            // Values that were computed on private data would be saved with the model.
            return Err(DpError::Training(error.clone()));
        }
        if state.current.is_some() {
            return Err(DpError::state("a checkpoint within a logical step cannot be resumed"));
        }
        let saved = wait(SavedRun::of_engine(&state.engine))?;
        if let Some(checkpointer) = &self.checkpointer
            && state.engine.release_log()?.is_none()
        {
            checkpointer.begin(&saved, &state.engine)?;
        }
        Ok(saved)
    }
}
