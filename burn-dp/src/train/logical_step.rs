//! The current logical step of a training run, which several devices may share.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use super::release::StepRelease;
use crate::DpError;
use crate::clipping::ClippedSum;
use crate::optim::engine::{PrivacyEngine, given_twice};
use crate::sampling::{Draw, DrawPart, Sampler};

/// The report of a step, set when the step is released.
pub(super) type ReleaseSlot = Arc<OnceLock<Arc<StepRelease>>>;

/// The privacy of the run, and the current logical step.
pub(super) struct State {
    pub(super) engine: PrivacyEngine,
    sampler: Box<dyn Sampler>,
    pub(super) current: Option<LogicalStep>,
    pub(super) ended: Option<Ended>,
}

/// The reason why nothing more is released.
#[derive(Clone)]
pub(super) enum Ended {
    Stopped(String),
    Failed(Arc<DpError>),
}

impl From<DpError> for Ended {
    fn from(error: DpError) -> Self {
        match error {
            DpError::BudgetExhausted { .. } => Self::Stopped(error.to_string()),
            error => Self::Failed(Arc::new(error)),
        }
    }
}

/// A logical batch whose step has not run yet.
pub(super) struct LogicalStep {
    pub(super) draw: Draw,
    /// Which parts were loaded, one for each device.
    begun: Vec<bool>,
    loop_thread: ThreadId,
    /// The sums are added in the order of the physical batches, so that the result depends neither
    /// on the number of devices nor on their speed.
    next_position: usize,
    waiting: BTreeMap<usize, (DrawPart, ClippedSum)>,
    pub(super) slot: ReleaseSlot,
}

/// What one device does in a step.
pub(super) struct Part {
    pub(super) draw: Draw,
    pub(super) slot: ReleaseSlot,
}

impl State {
    pub(super) fn new(engine: PrivacyEngine) -> Result<Self, DpError> {
        let sampler = engine.plan.sampler()?;
        Ok(Self { engine, sampler, current: None, ended: None })
    }

    /// Starts part `part` of `parts` of the next logical step.
    pub(super) fn begin(&mut self, part: usize, parts: usize) -> Result<Part, DpError> {
        let caller = std::thread::current().id();
        let current = match &mut self.current {
            Some(current) => current,
            None => {
                self.engine.admission().check_next()?;
                let draw = self.sampler.draw(self.engine.next_step())?;
                self.current.insert(LogicalStep {
                    draw,
                    begun: vec![false; parts],
                    loop_thread: caller,
                    next_position: 0,
                    waiting: BTreeMap::new(),
                    slot: ReleaseSlot::default(),
                })
            }
        };
        if current.loop_thread != caller {
            return Err(DpError::state(
                "the devices of this training step separately (`ExecutionStrategy::ddp`), so that \
                 each would release its part of a batch; use `ExecutionStrategy::multi`, which \
                 releases one sum",
            ));
        }
        let is_next = current.draw.step() == self.engine.next_step();
        match current.begun.get_mut(part) {
            Some(begun) if is_next && !*begun => *begun = true,
            _ => {
                return Err(DpError::state(format!(
                    "the batch of step {} was not released before the next one was loaded: \
                     gradient accumulation does not define the logical batch; leave \
                     `grads_accumulation` out and set the physical batch size, which splits what \
                     does not fit into memory",
                    current.draw.step()
                )));
            }
        }
        Ok(Part { draw: current.draw.clone(), slot: current.slot.clone() })
    }

    /// Returns whether the units of `part` are to be added to the current logical step.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if they were given before, or belong to another draw.
    pub(super) fn admits(&self, part: &DrawPart) -> Result<bool, DpError> {
        // A batch with only padding has no units to add.
        if self.ended.is_some() || part.positions().is_empty() {
            return Ok(false);
        }
        let current = self.current.as_ref().filter(|current| current.draw == *part.draw());
        let current = current.ok_or_else(|| no_current_step(part.step()))?;
        let start = part.positions().start;
        if start < current.next_position || current.waiting.contains_key(&start) {
            let unit = part.draw().private_indices()[start];
            return Err(given_twice(unit, part.step()));
        }
        Ok(true)
    }

    /// Adds the sum of a physical batch of the logical step.
    pub(super) fn add(&mut self, part: DrawPart, sum: ClippedSum) -> Result<(), DpError> {
        let admitted = self.admits(&part)?;
        let Some(current) = self.current.as_mut().filter(|_| admitted) else { return Ok(()) };
        current.waiting.insert(part.positions().start, (part, sum));
        while let Some((part, sum)) = current.waiting.remove(&current.next_position) {
            current.next_position = part.positions().end;
            self.engine.accumulate(part, sum)?;
        }
        Ok(())
    }

    /// Returns the current logical step, whose parts are complete.
    pub(super) fn take_current(&mut self) -> Result<LogicalStep, DpError> {
        let step = self.engine.next_step();
        let current = self.current.take().ok_or_else(|| no_current_step(step))?;
        if !current.waiting.is_empty() || !current.begun.iter().all(|&begun| begun) {
            return Err(DpError::state(format!(
                "not all parts of the batch of step {step} were clipped: under \
                 `ExecutionStrategy::ddp` every device would release its own; use \
                 `ExecutionStrategy::multi`, and the loader of `PrivateTraining` as it is"
            )));
        }
        Ok(current)
    }
}

fn no_current_step(step: u64) -> DpError {
    DpError::state(format!(
        "no batch of step {step} is in progress; use the loader of `PrivateTraining` as it is"
    ))
}
