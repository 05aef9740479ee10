//! The configuration of a training run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::FloatDType;

use super::checkpoints::Bundle;
use super::session::Session;
use super::training::{PrivateTraining, Resumed};
use crate::DpError;
use crate::checkpoint::{Checkpoint, Checkpointer, SCHEDULER};
use crate::grads::PrivateBackward;
use crate::optim::engine::PrivacyEngine;
use crate::optim::{IndependenceCheck, PrivacyPlan, Sparsifier, WeightAverage};

/// Configuration of a [`PrivateTraining`].
#[derive(Clone, Debug)]
pub struct PrivateTrainingConfig {
    physical_batch_size: usize,
    steps_per_epoch: Option<u64>,
    backward: PrivateBackward,
    precision: Option<FloatDType>,
    independence_check: IndependenceCheck,
    checkpoints: Option<PathBuf>,
    key_file: Option<PathBuf>,
    sparsifier: Option<Sparsifier>,
    weight_average: Option<WeightAverage>,
}

impl PrivateTrainingConfig {
    /// Uses physical batches of at most `physical_batch_size` units: as many as fit into memory.
    /// The result of a step does not depend on it except for the rounding of sums.
    pub fn new(physical_batch_size: usize) -> Self {
        Self {
            physical_batch_size,
            steps_per_epoch: None,
            backward: PrivateBackward::new(),
            precision: None,
            independence_check: IndependenceCheck::default(),
            checkpoints: None,
            key_file: None,
            sparsifier: None,
            weight_average: None,
        }
    }

    /// Sets the number of steps between two validations, which Burn calls an epoch. Default: the
    /// data set size divided by the expected batch size, which is one expected pass over the data.
    pub fn with_steps_per_epoch(mut self, steps: u64) -> Self {
        self.steps_per_epoch = Some(steps);
        self
    }

    /// Sets the options of the backward pass.
    pub fn with_backward(mut self, backward: PrivateBackward) -> Self {
        self.backward = backward;
        self
    }

    /// Computes the losses and their gradients in another precision than the parameters have; see
    /// [`DpOptimizer::with_precision`]. The model that [`losses`](super::PrivateTrainStep::losses)
    /// runs on has it ([`precision_of`](crate::model::precision_of)): cast its inputs, and its
    /// outputs before the loss. Updates of units and of users are computed in the precision of the
    /// parameters, although the statement names this one.
    ///
    /// [`DpOptimizer::with_precision`]: crate::optim::DpOptimizer::with_precision
    pub fn with_precision(mut self, precision: FloatDType) -> Self {
        self.precision = Some(precision);
        self
    }

    /// Sets when the steps test the independence of the examples, by value and by gradient; see
    /// [`DpOptimizer::with_independence_check`]. Default: the first step.
    ///
    /// [`DpOptimizer::with_independence_check`]: crate::optim::DpOptimizer::with_independence_check
    pub fn with_independence_check(mut self, check: impl Into<IndependenceCheck>) -> Self {
        self.independence_check = check.into();
        self
    }

    /// Fixes weights that have converged, after each step. Checkpoints contain its state.
    ///
    /// # Privacy
    ///
    /// Post-processing; see [`Sparsifier`].
    pub fn with_sparsifier(mut self, sparsifier: Sparsifier) -> Self {
        self.sparsifier = Some(sparsifier);
        self
    }

    /// Averages the weights after each step. The average is validated, is used to choose among
    /// checkpoints by a validation metric, and is the model in Burn's result. The training and the
    /// model of a checkpoint use the weights themselves. Checkpoints contain both.
    ///
    /// # Privacy
    ///
    /// Post-processing; see [`WeightAverage`].
    pub fn with_weight_average(mut self, average: WeightAverage) -> Self {
        self.weight_average = Some(average);
        self
    }

    /// Saves checkpoints in `folder`, which belongs to this run alone.
    ///
    /// # Privacy
    ///
    /// The key of the run is next to the folder; see [`Checkpointer`]. A training run whose results
    /// would be in a folder with the key is rejected.
    pub fn with_checkpoints(mut self, folder: impl AsRef<Path>) -> Self {
        self.checkpoints = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Sets the file of the key; see [`Checkpointer::with_key_file`].
    pub fn with_key_file(mut self, path: impl AsRef<Path>) -> Self {
        self.key_file = Some(path.as_ref().to_path_buf());
        self
    }

    fn checkpointer(&self) -> Option<Checkpointer> {
        let checkpointer = Checkpointer::new(self.checkpoints.as_ref()?);
        Some(match &self.key_file {
            Some(key) => checkpointer.with_key_file(key),
            None => checkpointer,
        })
    }

    /// Starts a run.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a size is 0, [`DpError::InvalidState`] if the folder
    /// already has a checkpoint, and [`DpError::SavedState`] if it has a log with releases.
    pub fn init(self, plan: PrivacyPlan) -> Result<PrivateTraining, DpError> {
        if let Some(checkpointer) = self.checkpointer()
            && let Some(found) = checkpointer.latest()?
        {
            return Err(DpError::state(format!(
                "{} is a checkpoint of a run that was begun; resume it, or give the new run its \
                 own folder",
                found.folder().display()
            )));
        }
        let engine = self.engine(plan);
        self.training(engine, None)
    }

    /// Continues the run of a checkpoint, bit for bit as if it had never stopped. Steps after the
    /// checkpoint are repeated, or [skipped](Checkpoint::skip_lost_steps).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Checkpoint::restore`]: a run whose log is missing, damaged, older,
    /// or of another run is not resumed. Returns [`DpError::SavedState`] if the checkpoint has no
    /// learning rate scheduler, or another sparsifier or weight average than this configuration.
    pub fn resume(
        self,
        plan: PrivacyPlan,
        checkpoint: &Checkpoint,
    ) -> Result<PrivateTraining, DpError> {
        let saved = checkpoint.open()?;
        let is_beginning = saved.next_step() == 0;
        if !is_beginning && !saved.has(SCHEDULER) {
            return Err(DpError::saved_state(format!(
                "{} has no learning rate scheduler: it was saved by a custom loop; resume with \
                 `Checkpoint::restore` in that loop",
                checkpoint.folder().display()
            )));
        }
        saved.run().check_settings(self.sparsifier.as_ref(), self.weight_average.as_ref())?;
        let engine = checkpoint.resume_engine(&saved, self.engine(plan))?;
        self.training(engine, Some(Resumed { checkpoint: checkpoint.clone(), is_beginning }))
    }

    /// Continues from the newest checkpoint, or starts a run if there is none: for a program that
    /// is restarted after a crash.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`init`](Self::init) and [`resume`](Self::resume).
    pub fn init_or_resume(self, plan: PrivacyPlan) -> Result<PrivateTraining, DpError> {
        let latest = match self.checkpointer() {
            Some(checkpointer) => checkpointer.latest()?,
            None => None,
        };
        match latest {
            Some(checkpoint) => self.resume(plan, &checkpoint),
            None => self.init(plan),
        }
    }

    /// Returns a new engine with these options.
    fn engine(&self, plan: PrivacyPlan) -> PrivacyEngine {
        let mut engine = PrivacyEngine::new(plan);
        engine.backward = self.backward.clone();
        engine.precision = self.precision;
        engine.independence.set_schedule(self.independence_check);
        engine.sparsifier = self.sparsifier.clone();
        engine.average = self.weight_average.clone();
        engine
    }

    fn training(
        self,
        engine: PrivacyEngine,
        resumed: Option<Resumed>,
    ) -> Result<PrivateTraining, DpError> {
        if self.physical_batch_size == 0 {
            return Err(DpError::invalid("physical_batch_size", "must be at least 1, got 0"));
        }
        let steps_per_epoch = self.steps_per_epoch.unwrap_or(engine.plan.steps_per_epoch());
        if steps_per_epoch == 0 {
            return Err(DpError::invalid("steps_per_epoch", "must be at least 1, got 0"));
        }
        let checkpointer = self.checkpointer();
        let size = self.physical_batch_size;
        let session = Arc::new(Session::new(engine, size, steps_per_epoch, checkpointer.clone())?);
        let checkpoint = resumed.as_ref().map(|resumed| resumed.checkpoint.clone());
        let bundle =
            checkpointer.map(|found| Arc::new(Bundle::new(session.clone(), found, checkpoint)));
        Ok(PrivateTraining::new(session, bundle, resumed))
    }
}
