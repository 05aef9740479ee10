//! What the threads of a training share: the privacy of the run and the logical step under way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::store::RecordError;
use burn::tensor::Bytes;
use burn::train::train::WorkerFailure;
use burn::train::{Interrupter, TrainingError};
use burn_dp_accountant::PrivacyLedger;

use super::release::{StepRelease, signal_to_noise};
use crate::DpError;
use crate::checkpoint::{AVERAGE, Checkpointer, PrivacyState, records};
use crate::clipping::{ClippedSum, PublicNorms};
use crate::grads::Probe;
use crate::model::tie;
use crate::optim::{ClipTask, PrivacyEngine, WeightAverage};
use crate::sampling::{Draw, Sampler};

/// Filled when the step has been released.
pub(super) type ReleaseSlot = Arc<OnceLock<Arc<StepRelease>>>;

/// The one owner of everything private in a training.
pub(super) struct Session {
    state: Mutex<State>,
    pub(super) interrupter: Interrupter,
    pub(super) physical_batch_size: usize,
    pub(super) steps_per_epoch: u64,
    pub(super) checkpointer: Option<Checkpointer>,
    average: Mutex<Option<WeightAverage>>,
    /// Whether some metric looks at the outputs of the training batches.
    pub(super) keeps_outputs: AtomicBool,
    /// Whether some metric looks at the size of the updates.
    pub(super) measures_updates: AtomicBool,
    /// Whether the next record is that of the checkpoint that the run was resumed from.
    pub(super) expects_record: AtomicBool,
}

struct State {
    engine: PrivacyEngine,
    sampler: Box<dyn Sampler>,
    current: Option<LogicalStep>,
    ended: Option<Ended>,
}

/// Why nothing more is released.
#[derive(Clone)]
enum Ended {
    Stopped(String),
    Failed(Arc<DpError>),
}

/// A logical batch that is being worked off.
struct LogicalStep {
    draw: Draw,
    /// Which parts were asked for, one for each device.
    begun: Vec<bool>,
    loop_thread: ThreadId,
    /// The sums are added in the order of the virtual batches, so that the result does not depend on the
    /// number of devices or on which is faster.
    next_chunk: usize,
    waiting: BTreeMap<usize, ClippedSum>,
    slot: ReleaseSlot,
}

/// What one device does in a step.
pub(super) struct Part {
    pub(super) draw: Draw,
    pub(super) slot: ReleaseSlot,
}

impl Session {
    pub(super) fn new(
        engine: PrivacyEngine,
        physical_batch_size: usize,
        steps_per_epoch: u64,
        checkpointer: Option<Checkpointer>,
    ) -> Result<Self, DpError> {
        let sampler = engine.plan.sampler()?;
        Ok(Self {
            state: Mutex::new(State { engine, sampler, current: None, ended: None }),
            interrupter: Interrupter::new(),
            physical_batch_size,
            steps_per_epoch,
            checkpointer,
            average: Mutex::new(None),
            keeps_outputs: AtomicBool::new(false),
            measures_updates: AtomicBool::new(false),
            expects_record: AtomicBool::new(false),
        })
    }

    pub(super) fn with_weight_average(self, average: Option<WeightAverage>) -> Self {
        Self { average: Mutex::new(average), ..self }
    }

    fn average(&self) -> MutexGuard<'_, Option<WeightAverage>> {
        self.average.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn weight_average(&self) -> Option<WeightAverage> {
        self.average().clone()
    }

    /// The model with the averaged weights, where there is an average.
    pub(super) fn averaged<M: Module>(&self, model: &M) -> Option<M> {
        let averaged = self.average().as_ref()?.averaged(model.clone());
        averaged.map_err(|error| self.fail(error)).ok()
    }

    /// The file of the average in a checkpoint.
    pub(super) fn average_file(&self) -> Option<(&'static str, Result<Bytes, RecordError>)> {
        let average = self.average();
        Some((AVERAGE, Ok(Bytes::from_bytes_vec(average.as_ref()?.to_bytes()))))
    }

    /// Nothing is half done when a thread panics here: the engine refuses what is incomplete.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the privacy of the run.
    pub(super) fn with_engine<T>(&self, look: impl FnOnce(&PrivacyEngine) -> T) -> T {
        look(&self.state().engine)
    }

    /// The steps that are left of the epoch that the next step belongs to.
    pub(super) fn rest_of_epoch(&self) -> u64 {
        let (next, last) = self.with_engine(|engine| (engine.next_step, engine.plan.steps()));
        let end = (next / self.steps_per_epoch + 1).saturating_mul(self.steps_per_epoch);
        end.min(last).saturating_sub(next)
    }

    /// Number of epochs that are complete.
    pub(super) fn complete_epochs(&self) -> u64 {
        self.with_engine(|engine| {
            let whole = engine.next_step / self.steps_per_epoch;
            let over = engine.next_step >= engine.plan.steps() && self.ends_within_epoch(engine);
            whole + u64::from(over)
        })
    }

    fn ends_within_epoch(&self, engine: &PrivacyEngine) -> bool {
        !engine.plan.steps().is_multiple_of(self.steps_per_epoch)
    }

    /// Begins part `part` of `parts` of the next logical step. `None` when nothing more is released.
    pub(super) fn begin(&self, part: usize, parts: usize) -> Result<Option<Part>, Arc<DpError>> {
        let mut state = self.state();
        match &state.ended {
            Some(Ended::Stopped(_)) => return Ok(None),
            Some(Ended::Failed(error)) => return Err(error.clone()),
            None => {}
        }
        match state.begin(part, parts) {
            Ok(part) => Ok(Some(part)),
            Err(error @ DpError::BudgetExhausted { .. }) => {
                self.end(&mut state, Ended::Stopped(error.to_string()));
                Ok(None)
            }
            Err(error) => {
                let error = Arc::new(error);
                self.end(&mut state, Ended::Failed(error.clone()));
                Err(error)
            }
        }
    }

    /// What a thread needs to clip a virtual batch; `None` when nothing more is released.
    pub(super) fn clip_task<M: Module>(&self, model: &M) -> Result<Option<ClipTask>, DpError> {
        let mut state = self.state();
        match state.ended {
            Some(_) => Ok(None),
            None => state.engine.clip_task(model).map(Some),
        }
    }

    /// Adds virtual batch `chunk` of the logical step.
    pub(super) fn add(
        &self,
        step: u64,
        chunk: usize,
        (sum, probe): (Result<ClippedSum, DpError>, Option<Probe>),
    ) -> Result<(), DpError> {
        let mut state = self.state();
        state.engine.end_task(probe);
        let sum = sum?;
        if state.ended.is_some() {
            return Ok(());
        }
        let State { engine, current, .. } = &mut *state;
        let current = current.as_mut().filter(|current| current.draw.step() == step);
        let current = current.ok_or_else(|| not_under_way(step))?;
        current.waiting.insert(chunk, sum);
        while let Some(sum) = current.waiting.remove(&current.next_chunk) {
            engine.accumulate(sum)?;
            current.next_chunk += 1;
        }
        Ok(())
    }

    /// Releases the logical step and updates the model. The model is given back as it was when nothing
    /// was released. Beside it, whether that ends an epoch which another one follows.
    pub(super) fn release<M: Module>(
        &self,
        model: M,
        optim: &mut ModuleOptimizer,
        lr: ModuleLearningRate,
    ) -> (M, bool) {
        let mut state = self.state();
        if state.ended.is_some() {
            return (model, false);
        }
        let measures = self.measures_updates.load(Ordering::Relaxed);
        let released = self
            .save_beginning(&state.engine, &model, optim)
            .and_then(|()| state.release(&model, measures, self.steps_per_epoch));
        let (grads, release, slot) = match released {
            Ok(released) => released,
            Err(error) => {
                let ended = match error {
                    DpError::BudgetExhausted { .. } => Ended::Stopped(error.to_string()),
                    error => Ended::Failed(Arc::new(error)),
                };
                self.end(&mut state, ended);
                return (model, false);
            }
        };
        let next = state.engine.next_step;
        let ends_epoch =
            next.is_multiple_of(self.steps_per_epoch) && next < state.engine.plan.steps();
        drop(state);
        // A metric may look at it from now on.
        let _ = slot.set(Arc::new(release));
        // Nothing but counts was released.
        let Some(grads) = grads else { return (model, ends_epoch) };
        // Burn's optimizers update the first copy of a tied parameter.
        let model = tie(optim.step(lr, model, grads));
        let averaged = self.average().as_mut().map_or(Ok(()), |average| average.update(&model));
        if let Err(error) = averaged {
            self.fail(error);
        }
        (model, ends_epoch)
    }

    /// Gives the clipping policy norms on public data.
    pub(super) fn learn_from_public(&self, norms: &PublicNorms) -> Result<(), DpError> {
        let mut state = self.state();
        if let Some(current) = &state.current {
            return Err(DpError::state(format!(
                "the batch of step {} is under way, and its thresholds stay as they are until the step is \
                 made; give public norms between two steps (`PrivateModel::with_public_norms`)",
                current.draw.step()
            )));
        }
        state.engine.learn_from_public(norms)
    }

    /// Before the first release, a checkpoint of the beginning and the log of releases: what is reported
    /// in the first epoch is not lost with the process either.
    fn save_beginning<M: Module>(
        &self,
        engine: &PrivacyEngine,
        model: &M,
        optim: &ModuleOptimizer,
    ) -> Result<(), DpError> {
        let Some(checkpointer) = &self.checkpointer else { return Ok(()) };
        if engine.next_step > 0 || engine.ledger.releases() > 0 {
            return Ok(());
        }
        checkpointer.log(engine)?;
        let files = records(model, optim).into_iter().chain(self.average_file());
        checkpointer.write(PrivacyState::capture(engine)?, files).map(drop)
    }

    /// The whole privacy state between two steps.
    pub(super) fn capture(&self) -> Result<PrivacyState, DpError> {
        let state = self.state();
        if state.current.is_some() {
            return Err(DpError::state("a checkpoint within a logical step cannot be resumed"));
        }
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.log(&state.engine)?;
        }
        PrivacyState::capture(&state.engine)
    }

    /// Ends the training with an error; nothing of the step under way is released.
    pub(super) fn fail(&self, error: DpError) -> Arc<DpError> {
        let error = Arc::new(error);
        self.end(&mut self.state(), Ended::Failed(error.clone()));
        error
    }

    /// Ends the training with a reason that is no error.
    pub(super) fn stop(&self, reason: impl Into<String>) {
        self.end(&mut self.state(), Ended::Stopped(reason.into()));
    }

    fn end(&self, state: &mut State, ended: Ended) {
        if state.ended.is_some() {
            return;
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

    /// The ledger, once nothing more is released.
    pub(super) fn final_ledger(&self) -> Option<PrivacyLedger> {
        let state = self.state();
        state.ended.as_ref().map(|_| state.engine.ledger.clone())
    }

    /// Why the training was stopped by the plan or the budget.
    pub(super) fn stopped(&self) -> Option<String> {
        match &self.state().ended {
            Some(Ended::Stopped(reason)) => Some(reason.clone()),
            _ => None,
        }
    }

    /// The error that ended the training.
    pub(super) fn failed(&self) -> Option<Arc<DpError>> {
        match &self.state().ended {
            Some(Ended::Failed(error)) => Some(error.clone()),
            _ => None,
        }
    }
}

/// The gradients of a step, what is known of it, and where metrics look for that.
type Released = (Option<burn::optim::GradientsParams>, StepRelease, ReleaseSlot);

impl State {
    fn begin(&mut self, part: usize, parts: usize) -> Result<Part, DpError> {
        let caller = std::thread::current().id();
        let current = match &mut self.current {
            Some(current) => current,
            None => {
                self.engine.check_next()?;
                let draw = self.sampler.draw(self.engine.next_step)?;
                self.current.insert(LogicalStep {
                    draw,
                    begun: vec![false; parts],
                    loop_thread: caller,
                    next_chunk: 0,
                    waiting: BTreeMap::new(),
                    slot: ReleaseSlot::default(),
                })
            }
        };
        if current.loop_thread != caller {
            return Err(DpError::state(
                "the devices of this training step on their own (`ExecutionStrategy::ddp`), so that \
                 each would release its part of a batch; use `ExecutionStrategy::multi`, which \
                 releases one sum",
            ));
        }
        match current.begun.get_mut(part) {
            Some(begun) if current.draw.step() == self.engine.next_step && !*begun => *begun = true,
            _ => {
                return Err(DpError::state(format!(
                    "the batch of step {} was not released before the next one was loaded: gradient \
                     accumulation does not define the logical batch; leave `grads_accumulation` out \
                     and set the physical batch size, which splits what does not fit into memory",
                    current.draw.step()
                )));
            }
        }
        Ok(Part { draw: current.draw.clone(), slot: current.slot.clone() })
    }

    fn release<M: Module>(
        &mut self,
        model: &M,
        measures: bool,
        steps_per_epoch: u64,
    ) -> Result<Released, DpError> {
        let step = self.engine.next_step;
        let current = self.current.take().ok_or_else(|| not_under_way(step))?;
        if !current.waiting.is_empty() || !current.begun.iter().all(|&begun| begun) {
            return Err(DpError::state(format!(
                "not all parts of the batch of step {step} were worked off: under \
                 `ExecutionStrategy::ddp` every device would release its own; use \
                 `ExecutionStrategy::multi`, and the loader of `PrivateTraining` as it is"
            )));
        }
        let grads = self.engine.release(model, &current.draw)?;
        let snr = match &grads {
            Some(grads) if measures => signal_to_noise(model, grads, &self.engine)?,
            _ => None,
        };
        let release = StepRelease::new(step, steps_per_epoch, &self.engine, snr);
        Ok((grads, release, current.slot))
    }
}

fn not_under_way(step: u64) -> DpError {
    DpError::state(format!(
        "no batch of step {step} is under way; use the loader of `PrivateTraining` as it is"
    ))
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("steps_per_epoch", &self.steps_per_epoch)
            .field("physical_batch_size", &self.physical_batch_size)
            .finish_non_exhaustive()
    }
}
