//! What a training run stores, and what it must not store.

use std::path::Path;

use burn::module::Module;
use burn::optim::ModuleOptimizer;

use super::key_location::key_among;
use super::logical_step::{Ended, State};
use crate::DpError;
use crate::checkpoint::{Checkpointer, SavedRun};
use crate::device_read::wait;
use crate::optim::engine::PrivacyEngine;

/// The files of a training run, if it has any.
pub(super) struct Saving {
    checkpointer: Option<Checkpointer>,
}

impl Saving {
    pub(super) fn new(checkpointer: Option<Checkpointer>) -> Self {
        Self { checkpointer }
    }

    /// Returns an error if the key of the run would be in the folder of the results.
    pub(super) fn key_among_results(&self, results: &Path) -> Option<DpError> {
        match self.checkpointer.as_ref()?.key_file() {
            Ok(key) => key_among(results, &key),
            Err(error) => Some(error),
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
    pub(super) fn capture(&self, state: &State) -> Result<SavedRun, DpError> {
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
