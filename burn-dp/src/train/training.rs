//! From a plan to Burn's `SupervisedTraining`.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::data::dataloader::DataLoader;
use burn::data::dataset::Dataset;
use burn::train::checkpoint::{
    CheckpointingStrategy, ComposedCheckpointingStrategy, KeepLastNCheckpoints,
    MetricCheckpointingStrategy,
};
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::metric::{LossMetric, Metric};
use burn::train::{InferenceStep, Interrupter, SupervisedTraining};
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

use super::checkpoints::{Bundle, PartCheckpointer, SCHEDULER};
use super::loader::PrivateDataLoader;
use super::metrics::{
    ClippedShareMetric, ClippingNormMetric, EpsilonMetric, NonPrivateMetric, SignalToNoiseMetric,
};
use super::session::Session;
use super::{PrivateBatch, PrivateCheckpointing, PrivateModel, PrivateTrainStep};
use crate::DpError;
use crate::checkpoint::{Checkpoint, Checkpointer, MODEL, OPTIMIZER};
use crate::clipping::{Clipping, PublicNorms};
use crate::grads::PrivateBackward;
use crate::optim::engine::PrivacyEngine;
use crate::optim::{PrivacyPlan, Sparsifier, WeightAverage};
use crate::sampling::PrivateDataLoaderBuilder;

/// Configuration of a [`PrivateTraining`].
#[derive(Clone, Debug)]
pub struct PrivateTrainingConfig {
    physical_batch_size: usize,
    steps_per_epoch: Option<u64>,
    backward: PrivateBackward,
    independence_check: bool,
    checkpoints: Option<PathBuf>,
    sparsifier: Option<Sparsifier>,
    weight_average: Option<WeightAverage>,
}

impl PrivateTrainingConfig {
    /// Uses physical batches of at most `physical_batch_size` units: as many as fit into memory. The result
    /// of a step does not depend on it except for the rounding of sums.
    pub fn new(physical_batch_size: usize) -> Self {
        Self {
            physical_batch_size,
            steps_per_epoch: None,
            backward: PrivateBackward::new(),
            independence_check: true,
            checkpoints: None,
            sparsifier: None,
            weight_average: None,
        }
    }

    /// Sets the number of steps between two validations, which Burn calls an epoch. Default: the size of the
    /// data set over the expected batch size, which is one expected pass over the data.
    pub fn with_steps_per_epoch(mut self, steps: u64) -> Self {
        self.steps_per_epoch = Some(steps);
        self
    }

    /// Sets the options of the backward pass.
    pub fn with_backward(mut self, backward: PrivateBackward) -> Self {
        self.backward = backward;
        self
    }

    /// Sets whether the first step tests the independence of the examples; see
    /// [`DpOptimizer::with_independence_check`](crate::optim::DpOptimizer::with_independence_check).
    pub fn with_independence_check(mut self, enabled: bool) -> Self {
        self.independence_check = enabled;
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

    /// Averages the weights after each step. The average is validated, decides a choice among checkpoints by
    /// a metric of the validation, and is the model of Burn's result. The training, and the model of a
    /// checkpoint, use the weights themselves. Checkpoints contain both.
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
    /// They contain the key of the run; see [`Checkpointer`].
    pub fn with_checkpoints(mut self, folder: impl AsRef<Path>) -> Self {
        self.checkpoints = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Begins a run.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a size is 0, and [`DpError::SavedState`] if the folder of the
    /// checkpoints has a checkpoint already, or a log with releases.
    pub fn init(self, plan: PrivacyPlan) -> Result<PrivateTraining, DpError> {
        if let Some(folder) = &self.checkpoints
            && let Some(found) = Checkpointer::new(folder).latest()?
        {
            return Err(DpError::saved_state(format!(
                "{} is a checkpoint of a run that was begun; resume it, or give the new run its own \
                 folder",
                found.folder().display()
            )));
        }
        let engine = self.engine(plan);
        self.training(engine, None)
    }

    /// Continues the run of a checkpoint, bit for bit as if it had never stopped. Steps that followed the
    /// checkpoint are repeated, or [skipped](Checkpoint::skip_lost_steps).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Checkpoint::restore`]: nothing is resumed whose ledger is missing, damaged,
    /// older or of another run. Returns [`DpError::SavedState`] if the checkpoint has no learning rate
    /// scheduler, or another sparsifier or weight average than this configuration.
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

    /// Continues from the newest checkpoint, or begins a run if there is none: for a program that is
    /// restarted after a crash.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`init`](Self::init) and [`resume`](Self::resume).
    pub fn init_or_resume(self, plan: PrivacyPlan) -> Result<PrivateTraining, DpError> {
        let latest = match &self.checkpoints {
            Some(folder) => Checkpointer::new(folder).latest()?,
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
        engine.independence.set_enabled(self.independence_check);
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
        let passes = 1.0 / engine.plan.sampling_probability();
        let steps_per_epoch = self.steps_per_epoch.unwrap_or(passes.round().max(1.0) as u64);
        if steps_per_epoch == 0 {
            return Err(DpError::invalid("steps_per_epoch", "must be at least 1, got 0"));
        }
        let checkpointer = self.checkpoints.map(Checkpointer::new);
        let size = self.physical_batch_size;
        let session = Arc::new(Session::new(engine, size, steps_per_epoch, checkpointer.clone())?);
        let checkpoint = resumed.as_ref().map(|resumed| resumed.checkpoint.clone());
        let bundle =
            checkpointer.map(|found| Arc::new(Bundle::new(session.clone(), found, checkpoint)));
        Ok(PrivateTraining { session, bundle, resumed })
    }
}

/// The checkpoint that a run was resumed from.
#[derive(Debug)]
struct Resumed {
    checkpoint: Checkpoint,
    /// Whether nothing was released before it.
    is_beginning: bool,
}

/// One private run under Burn's `SupervisedTraining`, which keeps its dashboard, metrics,
/// schedulers, early stopping and devices.
///
/// # Privacy
///
/// That of a [`DpOptimizer`](crate::optim::DpOptimizer) with the same plan: the noise is added, and
/// the ledger kept, by the [model](Self::model). The training stops before the step that would
/// break the budget; [`finish`](Self::finish) says why a training ended, and is to be asked before
/// its model is used. Validation data that is private is not covered by the ledger: what early
/// stopping, a choice among checkpoints or a person learns of it is a release.
///
/// # Example
///
/// ```no_run
/// # use burn::{data::{dataloader::{DataLoaderBuilder, batcher::Batcher}, dataset::InMemDataset}, module::Module};
/// # use burn::{lr_scheduler::constant::ConstantLr, nn::{Linear, LinearConfig}, optim::SgdConfig, tensor::{Device, Tensor}, train::{InferenceStep, Learner, RegressionOutput}};
/// # use burn_dp::{DpError, losses::MseLossConfig, nn::{IntoPrivate, Private}, optim::PrivacyPlanConfig, sampling::PrivateDataLoaderBuilder};
/// # use burn_dp::train::{PrivateTrainStep, PrivateTrainingConfig};
/// # use burn_dp_accountant::Budget;
/// # #[derive(Module, Debug)]
/// # struct Net { fc: Private<Linear> }
/// # type Rows = (Tensor<2>, Tensor<2>);
/// # impl PrivateTrainStep for Net {
/// #     type Input = Rows;
/// #     type Output = RegressionOutput;
/// #     fn losses(&self, (x, y): Rows) -> (Tensor<1>, RegressionOutput) {
/// #         let output = self.fc.forward(x);
/// #         let losses = MseLossConfig::new().init().forward(output.clone(), y.clone());
/// #         (losses.clone(), RegressionOutput::new(losses, output, y))
/// #     }
/// # }
/// # impl InferenceStep for Net {
/// #     type Input = Rows;
/// #     type Output = RegressionOutput;
/// #     fn step(&self, rows: Rows) -> RegressionOutput { self.losses(rows).1 }
/// # }
/// # #[derive(Clone)]
/// # struct RowBatcher;
/// # impl Batcher<f32, Rows> for RowBatcher {
/// #     fn batch(&self, items: Vec<f32>, device: &Device) -> Rows {
/// #         let x = Tensor::<1>::from_floats(items.as_slice(), device).unsqueeze_dim(1);
/// #         (x.clone(), x * 2.0)
/// #     }
/// # }
/// # fn main() -> Result<(), DpError> {
/// # let device = Device::flex().autodiff();
/// # let model = Net { fc: LinearConfig::new(1, 1).init(&device).private() };
/// # let dataset = InMemDataset::new((0..1000).map(|i| i as f32 / 1000.0).collect());
/// # let valid = DataLoaderBuilder::new(RowBatcher).batch_size(100).build(InMemDataset::new(vec![0.5; 100]));
/// let plan = PrivacyPlanConfig::new(1000, 50.0)
///     .with_epochs(5.0)
///     .with_budget(Budget::new(3.0, 1e-5)?)
///     .init()?;
/// let private = PrivateTrainingConfig::new(256).with_checkpoints("run/private").init_or_resume(plan)?;
///
/// let train = private.loader(PrivateDataLoaderBuilder::new(RowBatcher), dataset)?;
/// let training = private
///     .supervised("run", train, valid)
///     .metric_train_numeric(private.epsilon_metric(1e-5)?)
///     .summary();
/// let lr = ConstantLr::from(0.5);
/// let learner = Learner::new(private.model(model)?, SgdConfig::new().init(), lr);
/// let result = training.launch(learner);
/// println!("{}", private.finish(&result)?);
/// let model = result.model.into_inner();
/// println!("{}", private.statement(&[1e-5])?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PrivateTraining {
    pub(super) session: Arc<Session>,
    bundle: Option<Arc<Bundle>>,
    resumed: Option<Resumed>,
}

impl PrivateTraining {
    /// The batches of the run, for any [`ExecutionStrategy`](burn::train::ExecutionStrategy) on one
    /// or several devices. The device of the builder is replaced by those of the strategy.
    ///
    /// With a data set whose items are users, all examples of one user in each, this is the loader
    /// of a user-level training.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] if `dataset` does not have the length of the plan.
    pub fn loader<D, I, O, E>(
        &self,
        builder: PrivateDataLoaderBuilder<I, O>,
        dataset: D,
    ) -> Result<Arc<dyn DataLoader<PrivateBatch<O>>>, DpError>
    where
        D: Dataset<I, E> + 'static,
        I: Send + 'static,
        O: Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (sampler, steps) =
            self.session.with_engine(|engine| (engine.plan.sampler(), engine.plan.steps()));
        let batches = builder.build(dataset, sampler?, steps)?;
        Ok(Arc::new(PrivateDataLoader::new(self.session.clone(), batches)))
    }

    /// The model that Burn's `Learner` gets. In a resumed run it has the parameters of the
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when the parameters of the checkpoint are not those of `model`.
    pub fn model<M: PrivateTrainStep>(&self, model: M) -> Result<PrivateModel<M>, DpError> {
        let model = match &self.resumed {
            Some(resumed) => resumed.checkpoint.load_model(model)?,
            None => model,
        };
        Ok(PrivateModel::new(model, self.session.clone()))
    }

    /// Burn's training with everything that the run needs: loaders, number of epochs, interrupter,
    /// checkpoints and the epoch to resume from. It keeps all of Burn's options but
    /// `grads_accumulation`, which is refused, and those of the checkpoints, which the run sets.
    ///
    /// Burn's `launch` gives a model whatever happened, and its terminal dashboard forgets errors
    /// and the reason of a stop: ask [`finish`](Self::finish) before the model is used.
    ///
    /// Checkpoints are kept as Burn keeps them: the last two and the one with the least validation
    /// loss. Give another strategy through [`checkpointing`](Self::checkpointing).
    pub fn supervised<M>(
        &self,
        directory: impl AsRef<Path>,
        train: Arc<dyn DataLoader<PrivateBatch<<M as PrivateTrainStep>::Input>>>,
        valid: Arc<dyn DataLoader<<M as InferenceStep>::Input>>,
    ) -> SupervisedTraining<PrivateModel<M>>
    where
        M: PrivateTrainStep + InferenceStep + Display + 'static,
    {
        let (epochs, complete) = (self.num_epochs(), self.complete_epochs());
        let training = SupervisedTraining::new(directory, train, valid)
            .with_interrupter(self.session.interrupter.clone())
            .num_epochs(epochs);
        let Some(bundle) = &self.bundle else { return training };
        let part = |name| PartCheckpointer { bundle: bundle.clone(), name };
        let training = training
            .with_custom_checkpointers(part(MODEL), part(OPTIMIZER), part(SCHEDULER))
            .with_checkpointing_strategy(self.checkpointing(default_strategy()));
        match &self.resumed {
            // The beginning of a run has no state of a scheduler.
            Some(resumed) if resumed.is_beginning => training.num_epochs(epochs - complete),
            Some(_) => training.checkpoint(complete),
            None => training,
        }
    }

    /// A strategy that saves the privacy of the run with each checkpoint, for
    /// [`with_checkpointing_strategy`](SupervisedTraining::with_checkpointing_strategy).
    pub fn checkpointing<S: CheckpointingStrategy>(&self, strategy: S) -> PrivateCheckpointing<S> {
        PrivateCheckpointing::new(strategy, self.bundle.clone())
    }

    /// Number of epochs of the whole run.
    pub fn num_epochs(&self) -> usize {
        let steps = self.session.with_engine(|engine| engine.plan.steps());
        usize::try_from(steps.div_ceil(self.session.steps_per_epoch)).unwrap_or(usize::MAX)
    }

    /// Number of epochs that are complete.
    pub fn complete_epochs(&self) -> usize {
        usize::try_from(self.session.complete_epochs()).unwrap_or(usize::MAX)
    }

    /// The number of the next step.
    pub fn next_step(&self) -> u64 {
        self.session.with_engine(PrivacyEngine::next_step)
    }

    /// Stops Burn's loop, from any thread. [`supervised`](Self::supervised) has it already.
    pub fn interrupter(&self) -> Interrupter {
        self.session.interrupter.clone()
    }

    /// Why the training was stopped before its last step, if the budget or the plan did;
    /// [`finish`](Self::finish) says more.
    pub fn stopped(&self) -> Option<String> {
        self.session.stopped()
    }

    /// The error that ended the training, if one did.
    pub fn error(&self) -> Option<Arc<DpError>> {
        self.session.failed()
    }

    /// Gives the clipping policy norms of gradients on public data, between two steps: from the
    /// thread of the loop, as in a strategy of checkpoints or early stopping, or between two
    /// trainings. What measures them anew after every epoch is [`PrivateModel::with_public_norms`].
    ///
    /// # Errors
    ///
    /// Refuses norms while the batch of a step is under way, and norms that the policy has no use
    /// for.
    pub fn learn_from_public(&self, norms: &PublicNorms) -> Result<(), DpError> {
        self.session.learn_from_public(norms)
    }

    /// The clipping policy, as it is now: thresholds that it learned, quantiles that it estimates.
    pub fn clipping(&self) -> Box<dyn Clipping> {
        self.session.with_engine(|engine| engine.plan.clipping.clone())
    }

    /// The average of the weights so far, if there is one.
    pub fn weight_average(&self) -> Option<WeightAverage> {
        self.session.with_engine(|engine| engine.average.clone())
    }

    /// What was released so far.
    pub fn ledger(&self) -> PrivacyLedger {
        self.session.with_engine(|engine| engine.ledger.clone())
    }

    /// ε of what was released so far; as [`DpOptimizer::privacy_spent`].
    ///
    /// # Errors
    ///
    /// As [`DpOptimizer::privacy_spent`].
    ///
    /// [`DpOptimizer::privacy_spent`]: crate::optim::DpOptimizer::privacy_spent
    pub fn privacy_spent(&self, delta: f64) -> Result<Epsilon, DpError> {
        self.session.with_engine(|engine| engine.privacy_spent(delta))
    }

    /// The privacy statement of what was released so far.
    ///
    /// # Errors
    ///
    /// As [`DpOptimizer::statement`](crate::optim::DpOptimizer::statement).
    pub fn statement(&self, deltas: &[f64]) -> Result<PrivacyStatement, DpError> {
        self.session.with_engine(|engine| engine.statement(deltas))
    }

    /// ε so far, for the dashboard. Public.
    ///
    /// # Errors
    ///
    /// As [`privacy_spent`](Self::privacy_spent).
    pub fn epsilon_metric(&self, delta: f64) -> Result<EpsilonMetric, DpError> {
        self.session.with_engine(|engine| engine.plan.check_delta(delta))?;
        Ok(EpsilonMetric::new(delta, self.session.steps_per_epoch, Arc::downgrade(&self.session)))
    }

    /// The clipping norm, for the dashboard. Public.
    pub fn clipping_norm_metric(&self) -> ClippingNormMetric {
        ClippingNormMetric::new()
    }

    /// Signal to noise of the updates, for the dashboard. Post-processing of what was released.
    pub fn signal_to_noise_metric(&self) -> SignalToNoiseMetric {
        self.session.configure(|engine| engine.measures_signal = true);
        SignalToNoiseMetric::new()
    }

    /// The exact share of clipped units, for eyes that may see the data.
    ///
    /// # Privacy
    ///
    /// Not a release: whoever sees or stores it sees private data without noise.
    pub fn clipped_share_metric(&self) -> ClippedShareMetric {
        ClippedShareMetric::new()
    }

    /// A metric of Burn on the training batches, such as their loss, for eyes that may see the
    /// data.
    ///
    /// # Privacy
    ///
    /// Not a release: whoever sees or stores it sees private data without noise. Burn's loggers
    /// store it in the folder of the training.
    pub fn non_private_metric<Me: Metric>(&self, metric: Me) -> NonPrivateMetric<Me> {
        self.session.keeps_outputs.store(true, Ordering::Relaxed);
        NonPrivateMetric::new(metric)
    }
}

/// That of Burn.
fn default_strategy() -> ComposedCheckpointingStrategy {
    ComposedCheckpointingStrategy::builder()
        .add(KeepLastNCheckpoints::new(2))
        .add(MetricCheckpointingStrategy::new(
            &LossMetric::new(),
            Aggregate::Mean,
            Direction::Lowest,
            Split::Valid,
        ))
        .build()
}
