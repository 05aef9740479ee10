//! Checkpoints of `SupervisedTraining`: model, optimizer, scheduler and privacy, together or not at all.

use std::collections::BTreeMap;
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
use crate::checkpoint::{Checkpoint, Checkpointer, MODEL, PrivacyState};

/// The file of the scheduler, beside those of the custom loop's checkpoints.
pub(super) const SCHEDULER: &str = "scheduler.bpk";
/// Model, optimizer and scheduler: what Burn's loop saves.
const FILES: usize = 3;

/// Puts the parts of a checkpoint together that Burn's loop saves on threads of their own.
pub(super) struct Bundle {
    session: Arc<Session>,
    checkpointer: Checkpointer,
    /// The checkpoint that the run was resumed from.
    resumed: Option<Checkpoint>,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    /// By epoch: what is there of a checkpoint that is not complete yet.
    incomplete: BTreeMap<usize, Incomplete>,
    /// Steps after which complete checkpoints were made, by epoch.
    complete: BTreeMap<usize, u64>,
    /// Epochs whose checkpoints go when the next one is complete.
    outdated: Vec<usize>,
}

struct Incomplete {
    state: PrivacyState,
    files: Vec<(&'static str, Result<Bytes, RecordError>)>,
    /// Number of files of a complete checkpoint.
    expected: usize,
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

    /// Notes the privacy at the end of `epoch`, on the thread of the loop: the other parts are saved
    /// while the training goes on.
    fn begin(&self, epoch: usize) -> Result<(), DpError> {
        let state = self.session.capture()?;
        let files: Vec<_> = self.session.average_file().into_iter().collect();
        let expected = files.len() + FILES;
        self.parts().incomplete.insert(epoch, Incomplete { state, files, expected });
        Ok(())
    }

    fn add(
        &self,
        epoch: usize,
        name: &'static str,
        bytes: Result<Bytes, RecordError>,
    ) -> Result<(), DpError> {
        let mut parts = self.parts();
        let Some(incomplete) = parts.incomplete.get_mut(&epoch) else {
            return Err(DpError::state(format!(
                "the checkpoint of epoch {epoch} would be saved without the ledger; wrap the \
                 strategy in `PrivateTraining::checkpointing`"
            )));
        };
        incomplete.files.push((name, bytes));
        if incomplete.files.len() < incomplete.expected {
            return Ok(());
        }
        let Some(Incomplete { state, files, .. }) = parts.incomplete.remove(&epoch) else {
            return Ok(());
        };
        let steps = state.steps();
        self.checkpointer.write(state, files)?;
        parts.complete.insert(epoch, steps);
        // The beginning of the run, and what was replaced while this one was incomplete.
        self.checkpointer.remove_partial();
        self.checkpointer.remove(0);
        for epoch in std::mem::take(&mut parts.outdated) {
            self.remove(&mut parts, epoch);
        }
        Ok(())
    }

    /// Deletes the checkpoint of `epoch`, though never before a newer one is complete.
    fn delete(&self, epoch: usize) {
        let mut parts = self.parts();
        match parts.incomplete.is_empty() {
            true => self.remove(&mut parts, epoch),
            false => parts.outdated.push(epoch),
        }
    }

    fn remove(&self, parts: &mut Parts, epoch: usize) {
        // An epoch of an earlier process ended where its last step did.
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
        let bytes = resumed.open().and_then(|files| files.read(name)).map_err(failed)?;
        if name == MODEL {
            self.session.expects_record.store(true, Ordering::Relaxed);
        }
        R::checkpoint_from_bytes(bytes).map_err(CheckpointerError::Record)
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("checkpointer", &self.checkpointer).finish_non_exhaustive()
    }
}

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
        // Burn's dashboard may forget it.
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

/// A strategy of Burn whose checkpoints have the privacy of the run.
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
