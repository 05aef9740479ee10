//! Erasing the key of a run at its end.

use super::key_file::{KeyFile, mark_erased};
use crate::DpError;
use crate::optim::DpOptimizer;
use crate::optim::engine::PrivacyEngine;

/// Erases the key of the run on disk and in memory.
pub(crate) fn forget_key(engine: &mut PrivacyEngine) -> Result<(), DpError> {
    if engine.is_within_step() {
        return Err(DpError::state(
            "the key cannot be erased within a logical step; make the step first, or `discard` \
             what was accumulated",
        ));
    }
    let (path, log) = {
        let releases = engine.releases()?;
        (releases.key.1.clone(), releases.path())
    };
    if let Some(path) = path {
        if let Some(folder) = log.as_ref().and_then(|log| log.parent()) {
            mark_erased(folder, engine.plan.origin)?;
        }
        KeyFile::new(&path).erase_of(engine.plan.origin)?;
    }
    engine.forget_key();
    Ok(())
}

impl DpOptimizer {
    /// Erases the key of the run: the file in which a
    /// [`Checkpointer`](crate::checkpoint::Checkpointer) stored it, and the memory of this
    /// optimizer. Call this when the run is over and its model is saved. Without the key, the run
    /// can neither take further steps nor repeat any. The ledger, the statement, and the model of
    /// the last checkpoint remain.
    ///
    /// Batches, samplers, and [records](Self::to_record) of the run keep their copies until they
    /// are dropped or deleted.
    ///
    /// # Privacy
    ///
    /// Whoever has the key can subtract the noise of everything that the run released. The file is
    /// overwritten and removed; copies of it, in backups or made by the file system, are not. The
    /// [statement](Self::statement) says that the key was erased.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] within a logical step, and [`DpError::Io`] if the file
    /// cannot be erased.
    pub fn forget_key(&mut self) -> Result<(), DpError> {
        forget_key(&mut self.engine)
    }
}
