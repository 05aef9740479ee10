//! State that the threads of a training run share: the privacy of the run and the current logical
//! step.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::train::train::WorkerFailure;
use burn::train::{Interrupter, TrainingError};
use burn_dp_accountant::PrivacyLedger;

use super::logical_step::{Ended, Part, State};
use super::release::StepRelease;
use super::saving::Saving;
use crate::DpError;
use crate::checkpoint::Checkpointer;
use crate::clipping::{ClippedSum, PublicNorms};
use crate::device_read::wait;
use crate::optim::buffers::Extent;
use crate::optim::engine::{EngineAccess, PrivacyEngine};
use crate::optim::releases::Events;
use crate::sampling::DrawPart;

/// Owns everything private in a training run. It drives the engine of the custom loop for Burn's
/// learner.
pub(super) struct Session {
    state: Mutex<State>,
    pub(super) interrupter: Interrupter,
    pub(super) physical_batch_size: usize,
    pub(super) steps_per_epoch: u64,
    pub(super) saving: Saving,
    /// Whether a metric uses the outputs of the training batches.
    pub(super) keeps_outputs: AtomicBool,
    /// Whether the next record belongs to the checkpoint that the run was resumed from.
    pub(super) expects_record: AtomicBool,
    /// The ledger before the first step, and the releases: shared with the reports of steps.
    empty: Arc<PrivacyLedger>,
    events: Events,
}

impl Session {
    pub(super) fn new(
        engine: PrivacyEngine,
        physical_batch_size: usize,
        steps_per_epoch: u64,
        checkpointer: Option<Checkpointer>,
    ) -> Result<Self, DpError> {
        let empty = Arc::new(engine.plan.new_ledger());
        let events = engine.releases()?.events().clone();
        Ok(Self {
            state: Mutex::new(State::new(engine)?),
            interrupter: Interrupter::new(),
            physical_batch_size,
            steps_per_epoch,
            saving: Saving::new(checkpointer),
            keeps_outputs: AtomicBool::new(false),
            expects_record: AtomicBool::new(false),
            empty,
            events,
        })
    }

    /// Nothing is inconsistent after a panic of another thread, because the engine rejects
    /// incomplete steps.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the privacy of the run.
    pub(super) fn with_engine<T>(&self, read: impl FnOnce(&PrivacyEngine) -> T) -> T {
        read(&self.state().engine)
    }

    /// Changes an option of the run.
    pub(super) fn configure<T>(&self, change: impl FnOnce(&mut PrivacyEngine) -> T) -> T {
        change(&mut self.state().engine)
    }

    /// Ends the training with an error if a value of `model` that is not trained changed. Burn
    /// calls this before each validation, and every checkpoint follows a validation.
    pub(super) fn check_buffers<M: Module>(&self, model: &M) {
        let buffers = self.with_engine(|engine| engine.buffers.clone());
        if let Err(error) = wait(buffers.verify(model, Extent::Whole)) {
            self.fail(error);
        }
    }

    /// Returns the model with the averaged weights, if there is an average.
    pub(super) fn averaged<M: Module>(&self, model: &M) -> Option<M> {
        let mut state = self.state();
        let averaged = state.engine.average.as_ref()?.averaged(model.clone());
        averaged.map_err(|error| self.end(&mut state, error.into())).ok()
    }

    /// Returns the number of steps until the end of the epoch that contains the next step.
    pub(super) fn rest_of_epoch(&self) -> u64 {
        let (next, last) = self.with_engine(|engine| (engine.next_step(), engine.plan.steps()));
        let end = (next / self.steps_per_epoch + 1).saturating_mul(self.steps_per_epoch);
        end.min(last).saturating_sub(next)
    }

    /// Returns the number of epochs that are complete.
    pub(super) fn complete_epochs(&self) -> u64 {
        self.with_engine(|engine| {
            let whole = engine.next_step() / self.steps_per_epoch;
            let is_over = engine.next_step() >= engine.plan.steps();
            let ends_within_epoch = !engine.plan.steps().is_multiple_of(self.steps_per_epoch);
            whole + u64::from(is_over && ends_within_epoch)
        })
    }

    /// Starts part `part` of `parts` of the next logical step. `None` if nothing more is released.
    pub(super) fn begin(&self, part: usize, parts: usize) -> Result<Option<Part>, Arc<DpError>> {
        let mut state = self.state();
        if state.ended.is_none() {
            match state.begin(part, parts) {
                Ok(part) => return Ok(Some(part)),
                Err(error) => self.end(&mut state, error.into()),
            }
        }
        match &state.ended {
            Some(Ended::Failed(error)) => Err(error.clone()),
            _ => Ok(None),
        }
    }

    /// Runs the logical step. Returns the model, unchanged if nothing was released, and whether an
    /// epoch ended that was not the last.
    pub(super) fn step<M: Module>(
        &self,
        model: M,
        optim: &mut ModuleOptimizer,
        lr: ModuleLearningRate,
    ) -> (M, bool) {
        let mut state = self.state();
        if state.ended.is_some() {
            return (model, false);
        }
        let begun = self.saving.save_beginning(&state.engine, &model, optim);
        let current = match begun.and_then(|()| state.take_current()) {
            Ok(current) => current,
            Err(error) => {
                self.end(&mut state, error.into());
                return (model, false);
            }
        };
        let outcome = wait(state.engine.step(optim, lr, model, &current.draw));
        if outcome.released {
            let (empty, events) = (self.empty.clone(), self.events.clone());
            let (step, epoch) = (current.draw.step(), self.steps_per_epoch);
            let release = StepRelease::new(&state.engine, step, epoch, empty, events);
            // Metrics may read it from now on.
            let _ = current.slot.set(Arc::new(release));
        }
        if let Some(error) = outcome.error {
            self.end(&mut state, error.into());
        }
        let (next, last) = (state.engine.next_step(), state.engine.plan.steps());
        let ends_epoch = next.is_multiple_of(self.steps_per_epoch) && next < last;
        (outcome.model, outcome.released && ends_epoch)
    }

    /// Passes norms on public data to the clipping policy.
    pub(super) fn learn_from_public(&self, norms: &PublicNorms) -> Result<(), DpError> {
        let mut state = self.state();
        if let Some(current) = &state.current {
            return Err(DpError::state(format!(
                "the batch of step {} is in progress, and its thresholds are fixed until the step \
                 is made; give public norms between two steps (`PrivateModel::with_public_norms`)",
                current.draw.step()
            )));
        }
        state.engine.learn_from_public(norms)
    }

    /// Ends the training with an error; nothing of the current step is released.
    pub(super) fn fail(&self, error: DpError) -> Arc<DpError> {
        let error = Arc::new(error);
        self.end(&mut self.state(), Ended::Failed(error.clone()));
        error
    }

    /// Ends the training with a reason that is not an error.
    pub(super) fn stop(&self, reason: impl Into<String>) {
        self.end(&mut self.state(), Ended::Stopped(reason.into()));
    }

    fn end(&self, state: &mut State, ended: Ended) {
        match (&state.ended, &ended) {
            (None, _) => {}
            // A stopped run, whose model is returned, must not hide what the model contains.
            (Some(Ended::Stopped(_)), Ended::Failed(error))
                if matches!(**error, DpError::ChangedBuffer { .. }) =>
            {
                state.ended = Some(ended);
                return;
            }
            _ => return,
        }
        state.engine.discard();
        state.current = None;
        match &ended {
            Ended::Stopped(reason) => self.interrupter.stop(Some(reason)),
            Ended::Failed(error) => {
                self.interrupter.fail(TrainingError::Workers(vec![WorkerFailure {
                    device_id: 0,
                    message: error.to_string(),
                }]))
            }
        }
        state.ended = Some(ended);
    }

    /// Returns the ledger, once nothing more is released.
    pub(super) fn final_ledger(&self) -> Option<(PrivacyLedger, u64)> {
        let state = self.state();
        let (ledger, releases) = (&state.engine.ledger, state.engine.own_releases());
        state.ended.as_ref().map(|_| (ledger.clone(), releases))
    }

    /// Returns why the training was stopped by the plan or the budget.
    pub(super) fn stopped(&self) -> Option<String> {
        match &self.state().ended {
            Some(Ended::Stopped(reason)) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Returns the error that ended the training.
    pub(super) fn failed(&self) -> Option<Arc<DpError>> {
        match &self.state().ended {
            Some(Ended::Failed(error)) => Some(error.clone()),
            _ => None,
        }
    }
}

/// The engine of all threads of the training run.
impl EngineAccess for &Session {
    fn with<T>(&mut self, call: impl FnOnce(&mut PrivacyEngine) -> T) -> T {
        self.configure(call)
    }

    fn is_over(&self) -> bool {
        self.state().ended.is_some()
    }

    fn check(&self, part: &DrawPart) -> Result<(), DpError> {
        self.state().admits(part).map(drop)
    }

    fn add(&mut self, part: DrawPart, sum: ClippedSum) -> Result<(), DpError> {
        self.state().add(part, sum)
    }
}

opaque_debug!(Session, |this|
    steps_per_epoch: this.steps_per_epoch,
    physical_batch_size: this.physical_batch_size
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::Device;

    use super::*;
    use crate::optim::PrivacyPlanConfig;
    use crate::random::InsecureSeed;
    use crate::updates::{UnitUpdate, clip_updates};

    fn session(seed: u64) -> Session {
        let plan = PrivacyPlanConfig::new(40, 20.0)
            .with_steps(2)
            .with_noise_multiplier(1.0)
            .with_insecure_seed(InsecureSeed(seed));
        Session::new(PrivacyEngine::new(plan.init().unwrap()), 4, 2, None).unwrap()
    }

    fn model() -> Linear {
        LinearConfig::new(1, 1).init(&Device::flex().autodiff())
    }

    /// Adds the updates of a part, which are zero.
    fn add(session: &Session, part: DrawPart) -> Result<(), String> {
        let thresholds = session.configure(PrivacyEngine::thresholds).unwrap();
        let zero = |_: Linear, _: usize| Ok(UnitUpdate::zero());
        let units = part.private_indices().to_vec();
        let sum = clip_updates(&thresholds, &model(), units, zero).unwrap();
        session.state().add(part, sum).map_err(|error| error.to_string())
    }

    #[test]
    fn a_part_that_a_device_gives_twice_or_from_another_draw_is_refused() {
        let session = session(1);
        let draw = session.begin(0, 1).unwrap().unwrap().draw;
        let part = |number| draw.parts(3).unwrap().nth(number).unwrap();
        let twice =
            |position: usize| format!("unit {} of step 0 was", draw.private_indices()[position]);
        // The second part waits for the first one.
        add(&session, part(1)).unwrap();
        assert!(add(&session, part(1)).unwrap_err().contains(&twice(3)));
        add(&session, part(0)).unwrap();
        for (number, position) in [(0, 0), (1, 3)] {
            assert!(add(&session, part(number)).unwrap_err().contains(&twice(position)));
        }
        let other = self::session(2).begin(0, 1).unwrap().unwrap().draw;
        let error = add(&session, other.parts(3).unwrap().nth(2).unwrap()).unwrap_err();
        assert!(error.contains("no batch of step 0 is in progress"), "{error}");
    }

    #[test]
    fn a_value_that_changed_is_an_error_also_of_a_run_that_was_stopped() {
        let session = session(1);
        let (model, other) = (model().no_grad(), model().no_grad());
        session.configure(|engine| wait(engine.buffers.begin(&model))).unwrap();
        session.stop("the budget is spent");
        session.fail(DpError::state("too late"));
        session.check_buffers(&model);
        assert!(session.failed().is_none() && session.stopped().is_some());
        session.check_buffers(&other);
        let error = session.failed().unwrap().to_string();
        assert!(error.contains("not trained") && session.stopped().is_none(), "{error}");
    }

    #[test]
    fn a_part_that_no_device_gives_is_refused() {
        let session = session(1);
        let draw = session.begin(0, 1).unwrap().unwrap().draw;
        for part in draw.parts(3).unwrap().skip(1) {
            add(&session, part).unwrap();
        }
        let (_, _) = session.step(model(), &mut SgdConfig::new().init(), 0.1.into());
        let error = session.failed().unwrap().to_string();
        assert!(error.contains("not all parts of the batch of step 0 were clipped"), "{error}");
        assert_eq!(session.with_engine(|engine| engine.ledger.releases()), 0);
    }
}
