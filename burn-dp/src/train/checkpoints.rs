//! Atomic checkpoints of `SupervisedTraining`: model, optimizer, scheduler, and privacy state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::store::RecordError;
use burn::tensor::Bytes;
use burn::train::checkpoint::{
    Checkpoint as Record, Checkpointer as BurnCheckpointer, CheckpointerError, CheckpointingAction,
    CheckpointingStrategy,
};
use burn::train::metric::store::EventStoreClient;

use super::session::Session;
use crate::DpError;
use crate::checkpoint::{Checkpoint, Checkpointer, MODEL, OPTIMIZER, SCHEDULER, SavedRun};

/// Collects the parts of a checkpoint, which Burn's loop saves on separate threads.
pub(super) struct Bundle {
    session: Arc<Session>,
    checkpointer: Checkpointer,
    /// The checkpoint that the run was resumed from.
    resumed: Option<Checkpoint>,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    /// By epoch: checkpoints that lack a part.
    incomplete: BTreeMap<usize, SavedRun>,
    /// By epoch: the number of steps before a complete checkpoint.
    complete: BTreeMap<usize, u64>,
    /// Epochs whose checkpoints are removed when the next one is complete.
    outdated: Vec<usize>,
    /// Epochs whose checkpoints were removed.
    removed: BTreeSet<usize>,
}

impl Bundle {
    pub(super) fn new(
        session: Arc<Session>,
        checkpointer: Checkpointer,
        resumed: Option<Checkpoint>,
    ) -> Self {
        Self { session, checkpointer, resumed, parts: Mutex::default() }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Captures the privacy state at the end of `epoch`, on the thread of the loop. The other parts
    /// are saved while the training continues.
    fn begin(&self, epoch: usize) -> Result<(), DpError> {
        let saved = self.session.saving.capture(&self.session.state())?;
        self.parts().incomplete.insert(epoch, saved);
        Ok(())
    }

    fn add(
        &self,
        epoch: usize,
        name: &'static str,
        bytes: Result<Bytes, RecordError>,
    ) -> Result<(), DpError> {
        let mut parts = self.parts();
        let Some(mut saved) = parts.incomplete.remove(&epoch) else {
            return Err(DpError::state(format!(
                "the checkpoint of epoch {epoch} would be saved without the ledger; wrap the \
                 strategy in `PrivateTraining::checkpointing`"
            )));
        };
        saved.insert_record(name, bytes)?;
        if ![MODEL, OPTIMIZER, SCHEDULER].iter().all(|name| saved.has(name)) {
            parts.incomplete.insert(epoch, saved);
            return Ok(());
        }
        self.checkpointer.write(&saved, None)?;
        parts.complete.insert(epoch, saved.next_step());
        // The start of the run, and checkpoints that were replaced while this one was incomplete.
        self.checkpointer.remove_partial();
        self.checkpointer.remove(0);
        for epoch in std::mem::take(&mut parts.outdated) {
            self.remove(&mut parts, epoch);
        }
        Ok(())
    }

    /// Removes the checkpoint of `epoch`, but not before a newer one is complete.
    fn delete(&self, epoch: usize) {
        let mut parts = self.parts();
        match parts.incomplete.is_empty() {
            true => self.remove(&mut parts, epoch),
            false => parts.outdated.push(epoch),
        }
    }

    /// Burn deletes model, optimizer and scheduler of an epoch one after another.
    fn remove(&self, parts: &mut Parts, epoch: usize) {
        if !parts.removed.insert(epoch) {
            return;
        }
        // An epoch of an earlier process ended at its last step.
        let steps = parts.complete.remove(&epoch).unwrap_or_else(|| {
            let last = self.session.with_engine(|engine| engine.plan.steps());
            (epoch as u64).saturating_mul(self.session.steps_per_epoch).min(last)
        });
        self.checkpointer.remove(steps);
    }

    fn restore<R: Record>(&self, name: &str, epoch: usize) -> Result<R, CheckpointerError> {
        let Some(resumed) = &self.resumed else {
            return Err(CheckpointerError::Unknown(format!(
                "epoch {epoch} cannot be resumed without its ledger; let \
                 `PrivateTrainingConfig::resume` find the checkpoint and leave `checkpoint` out"
            )));
        };
        let bytes = resumed.part(name).map_err(failed)?;
        if name == MODEL {
            self.session.expects_record.store(true, Ordering::Relaxed);
        }
        R::checkpoint_from_bytes(bytes).map_err(CheckpointerError::Record)
    }
}

opaque_debug!(Bundle, |this| checkpointer: this.checkpointer);

fn failed(error: impl fmt::Display) -> CheckpointerError {
    CheckpointerError::Unknown(error.to_string())
}

/// One file of the checkpoints, for one of Burn's three checkpointers.
#[derive(Clone, Debug)]
pub(super) struct PartCheckpointer {
    pub(super) bundle: Arc<Bundle>,
    pub(super) name: &'static str,
}

impl<R: Record> BurnCheckpointer<R> for PartCheckpointer {
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        let added = self.bundle.add(epoch, self.name, record.checkpoint_into_bytes());
        // Burn's dashboard may drop it.
        added.map_err(|error| failed(self.bundle.session.fail(error)))
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        self.bundle.delete(epoch);
        Ok(())
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        self.bundle.restore(self.name, epoch)
    }
}

/// A checkpointing strategy of Burn that includes the privacy state of the run.
#[derive(Debug)]
pub struct PrivateCheckpointing<S> {
    strategy: S,
    bundle: Option<Arc<Bundle>>,
}

impl<S> PrivateCheckpointing<S> {
    pub(super) fn new(strategy: S, bundle: Option<Arc<Bundle>>) -> Self {
        Self { strategy, bundle }
    }
}

impl<S: CheckpointingStrategy> CheckpointingStrategy for PrivateCheckpointing<S> {
    fn checkpointing(
        &mut self,
        epoch: usize,
        collector: &EventStoreClient,
    ) -> Vec<CheckpointingAction> {
        let mut actions = self.strategy.checkpointing(epoch, collector);
        if let Some(bundle) = &self.bundle
            && actions.contains(&CheckpointingAction::Save)
            && let Err(error) = bundle.begin(epoch)
        {
            bundle.session.fail(error);
            actions.clear();
        }
        actions
    }
}
