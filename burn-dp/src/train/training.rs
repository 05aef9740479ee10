//! Creates Burn's `SupervisedTraining` from a plan.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::data::dataloader::DataLoader;
use burn::train::checkpoint::{
    CheckpointingStrategy, ComposedCheckpointingStrategy, KeepLastNCheckpoints,
    MetricCheckpointingStrategy,
};
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::metric::{LossMetric, Metric};
use burn::train::{InferenceStep, Interrupter, LearningResult, SupervisedTraining};
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

use super::checkpoints::{Bundle, PartCheckpointer};
use super::loader::PrivateDataLoader;
use super::metrics::{
    ClippedShareMetric, ClippingNormMetric, EpsilonMetric, NonPrivateMetric, SignalToNoiseMetric,
};
use super::session::Session;
use super::{PrivateBatch, PrivateCheckpointing, PrivateModel, PrivateTrainStep, TrainingEnd};
use crate::checkpoint::{Checkpoint, MODEL, OPTIMIZER, SCHEDULER, forget_key};
use crate::clipping::{Clipping, PublicNorms};
use crate::device_read::wait;
use crate::optim::engine::PrivacyEngine;
use crate::optim::{Sparsifier, WeightAverage};
use crate::sampling::{DistinctRecords, PrivateDataLoaderBuilder, RecordFacts};
use crate::{DpError, PublicData};

/// The checkpoint that a run was resumed from.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) checkpoint: Checkpoint,
    /// Whether nothing was released before it.
    pub(super) is_beginning: bool,
}

/// One private run with Burn's `SupervisedTraining`, including its dashboard, metrics, schedulers,
/// early stopping, and devices.
///
/// # Privacy
///
/// The guarantee equals that given by a [`DpOptimizer`](crate::optim::DpOptimizer) with the same
/// plan. The [model](Self::model) adds the noise and keeps the ledger. The training stops before
/// the step that would exceed the budget. Call [`finish`](Self::finish) before the model is used:
/// it returns why the training ended.
///
/// Private validation data is not covered by the ledger: early stopping, a choice among
/// checkpoints, and a person who reads the metrics use it without noise.
///
/// # Example
///
/// ```no_run
/// # use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};
/// # use burn::{data::dataset::InMemDataset, module::Module};
/// # use burn::nn::{Linear, LinearConfig};
/// # use burn::train::{InferenceStep, RegressionOutput};
/// # use burn::{optim::SgdConfig, tensor::{Device, Tensor}};
/// # use burn_dp::nn::{IntoPrivate, Private};
/// # use burn_dp::sampling::PrivateDataLoaderBuilder;
/// # use burn_dp::{DpError, losses::MseLossConfig, optim::PrivacyPlanConfig};
/// # use burn_dp::optim::PublicSchedule;
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
/// # let valid = InMemDataset::new(vec![0.5; 100]);
/// # let valid = DataLoaderBuilder::new(RowBatcher).batch_size(100).build(valid);
/// let plan = PrivacyPlanConfig::new(1000, 50.0)
///     .with_epochs(5.0)
///     .with_budget(Budget::new(3.0, 1e-5)?)
///     .init()?;
/// let config = PrivateTrainingConfig::new(256).with_checkpoints("run-private");
/// let private = config.init_or_resume(plan)?;
///
/// let train = private.loader(PrivateDataLoaderBuilder::new(RowBatcher), dataset)?;
/// let training = private
///     .supervised("run", train, valid)
///     .metric_train_numeric(private.epsilon_metric(1e-5)?)
///     .summary();
/// let schedule = PublicSchedule::new(0.5)?;
/// let learner = private.model(model)?.learner(SgdConfig::new().init(), schedule);
/// let result = training.launch(learner);
/// println!("{}", private.finish(&result)?);
/// let model = result.model.into_inner();
/// private.forget_key()?; // once the model is saved
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
    pub(super) fn new(
        session: Arc<Session>,
        bundle: Option<Arc<Bundle>>,
        resumed: Option<Resumed>,
    ) -> Self {
        Self { session, bundle, resumed }
    }

    /// Returns the loader of the run, for any [`ExecutionStrategy`](burn::train::ExecutionStrategy)
    /// on one or several devices. The devices of the strategy replace the device of the builder.
    ///
    /// With a data set whose items are users, each with all examples of one user, this is the
    /// loader for user-level training.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `dataset` does not have the length of the plan, or
    /// has [items of another unit](DistinctRecords::unit) or
    /// [other mini-sets or examples](DistinctRecords::members).
    pub fn loader<D, I, O, E>(
        &self,
        builder: PrivateDataLoaderBuilder<I, O>,
        dataset: D,
    ) -> Result<Arc<dyn DataLoader<PrivateBatch<O>>>, DpError>
    where
        D: DistinctRecords<I, E> + 'static,
        I: Send + 'static,
        O: Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let records = RecordFacts::of(&dataset);
        let (sampler, steps) = self.session.with_engine(|engine| {
            engine.plan.check_dataset(&records)?;
            Ok::<_, DpError>((engine.plan.sampler(), engine.plan.steps()))
        })?;
        let batches = builder.build(dataset, sampler?, steps)?;
        Ok(Arc::new(PrivateDataLoader::new(self.session.clone(), batches)))
    }

    /// Returns the model for Burn's `Learner`. In a resumed run it has the parameters of the
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the parameters of the checkpoint do not fit `model`.
    pub fn model<M: PrivateTrainStep>(&self, model: M) -> Result<PrivateModel<M>, DpError> {
        let model = match &self.resumed {
            Some(resumed) => resumed.checkpoint.load_model(model)?,
            None => model,
        };
        self.session.configure(|engine| wait(engine.buffers.begin(&model)))?;
        Ok(PrivateModel::new(model, self.session.clone()))
    }

    /// Returns Burn's training with everything that the run needs: loaders, number of epochs,
    /// interrupter, checkpoints, and the epoch to resume from. All options of Burn work, except
    /// `grads_accumulation`, which is rejected, and the checkpoint options, which the run sets.
    ///
    /// The key of the run must not be in `directory`, which has the results: otherwise the training
    /// fails before its first step, and [`finish`](Self::finish) returns the error.
    ///
    /// Burn's `launch` always returns a model, and its terminal dashboard drops errors and the
    /// reason for a stop: call [`finish`](Self::finish) before the model is used.
    ///
    /// By Burn's default, the last two checkpoints and the one with the lowest validation loss are
    /// kept. For another strategy, use [`checkpointing`](Self::checkpointing).
    pub fn supervised<M>(
        &self,
        directory: impl AsRef<Path>,
        train: Arc<dyn DataLoader<PrivateBatch<<M as PrivateTrainStep>::Input>>>,
        valid: Arc<dyn DataLoader<<M as InferenceStep>::Input>>,
    ) -> SupervisedTraining<PrivateModel<M>>
    where
        M: PrivateTrainStep + InferenceStep + Display + 'static,
    {
        if let Some(error) = self.session.saving.key_among_results(directory.as_ref()) {
            self.session.fail(error);
        }
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
            // At the start of a run there is no scheduler state.
            Some(resumed) if resumed.is_beginning => training.num_epochs(epochs - complete),
            Some(_) => training.checkpoint(complete),
            None => training,
        }
    }

    /// Returns a strategy that saves the privacy state of the run with each checkpoint, for
    /// [`with_checkpointing_strategy`](SupervisedTraining::with_checkpointing_strategy).
    pub fn checkpointing<S: CheckpointingStrategy>(&self, strategy: S) -> PrivateCheckpointing<S> {
        PrivateCheckpointing::new(strategy, self.bundle.clone())
    }

    /// Returns the number of epochs of the whole run.
    pub fn num_epochs(&self) -> usize {
        let steps = self.session.with_engine(|engine| engine.plan.steps());
        usize::try_from(steps.div_ceil(self.session.steps_per_epoch)).unwrap_or(usize::MAX)
    }

    /// Returns the number of epochs that are complete.
    pub fn complete_epochs(&self) -> usize {
        usize::try_from(self.session.complete_epochs()).unwrap_or(usize::MAX)
    }

    /// Returns the number of the next step.
    pub fn next_step(&self) -> u64 {
        self.session.with_engine(PrivacyEngine::next_step)
    }

    /// Returns the interrupter, which stops Burn's loop from any thread.
    /// [`supervised`](Self::supervised) sets it.
    pub fn interrupter(&self) -> Interrupter {
        self.session.interrupter.clone()
    }

    /// Returns why the budget or the plan stopped the training before its last step, if one did;
    /// [`finish`](Self::finish) covers all reasons.
    pub fn stopped(&self) -> Option<String> {
        self.session.stopped()
    }

    /// Returns the error that ended the training, if there was one.
    pub fn error(&self) -> Option<Arc<DpError>> {
        self.session.failed()
    }

    /// Returns how the training run with this result ended. Even a failed run has a model in its
    /// result, so call this before the model is used.
    ///
    /// Burn's terminal dashboard drops errors and the reason for a stop, and then the result does
    /// not contain them either. This method still returns what ended the private run: the plan, the
    /// budget, or an error in the training data, in a step, or in a checkpoint. If the dashboard
    /// dropped an error in the validation, only Burn's log and the missing steps remain as
    /// evidence.
    ///
    /// # Errors
    ///
    /// Returns the error that ended the training: [`DpError::Training`], or [`DpError::Learner`]
    /// for an error of Burn itself.
    pub fn finish<M>(&self, result: &LearningResult<M>) -> Result<TrainingEnd, DpError> {
        if let Some(error) = self.error() {
            return Err(DpError::Training(error));
        }
        if let Some(error) = &result.error {
            return Err(DpError::Learner(error.to_string()));
        }
        let planned = self.session.with_engine(|engine| engine.plan.steps());
        let steps = self.next_step();
        if steps >= planned {
            return Ok(TrainingEnd::Complete { steps });
        }
        let reason = self.stopped().or_else(|| self.interrupter().get_message());
        let reason = reason.unwrap_or_else(|| {
            "Burn's loop ended: by early stopping, after fewer epochs than planned, by its \
             interrupter, or by an error that its dashboard dropped and its log may have"
                .into()
        });
        Ok(TrainingEnd::Stopped { steps, planned, reason })
    }

    /// Passes norms of gradients on public data to the clipping policy, between two steps, from the
    /// thread of the loop. [`PrivateModel::with_public_norms`] measures them after every epoch.
    ///
    /// A checkpoint has the thresholds of its moment. If they change after it, as in an early
    /// stopping strategy or between two training runs, a run that is resumed from it has to learn
    /// the same norms before its first step; otherwise the repeated steps differ and are refused.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] while the batch of a step is in progress, and an error if
    /// the policy does not use public norms.
    pub fn learn_from_public(&self, norms: &PublicNorms) -> Result<(), DpError> {
        self.session.learn_from_public(norms)
    }

    /// Names public data in the [statement](Self::statement), and in checkpoints; see
    /// [`DpOptimizer::name_public_data`](crate::optim::DpOptimizer::name_public_data).
    pub fn name_public_data<T>(&self, data: &PublicData<T>) {
        self.session.configure(|engine| engine.name_public_data(data.origin()));
    }

    /// Returns the clipping policy in its current state, with adapted thresholds and estimated
    /// quantiles.
    pub fn clipping(&self) -> Box<dyn Clipping> {
        self.session.with_engine(|engine| engine.plan.clipping.clone())
    }

    /// Returns the average of the weights so far, if there is one.
    pub fn weight_average(&self) -> Option<WeightAverage> {
        self.session.with_engine(|engine| engine.average.clone())
    }

    /// Returns the sparsifier in its current state, if there is one.
    pub fn sparsifier(&self) -> Option<Sparsifier> {
        self.session.with_engine(|engine| engine.sparsifier.clone())
    }

    /// Returns the ledger of everything that was released so far, with all that the
    /// [statement](Self::statement) says about it.
    pub fn ledger(&self) -> PrivacyLedger {
        self.session.with_engine(|engine| engine.described_ledger())
    }

    /// Returns the ε of everything that was released so far. It is infinite if the noise is not
    /// secret.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if δ is 1 / dataset size or more, and
    /// [`DpError::Accountant`] if δ is outside (0, 1).
    pub fn privacy_spent(&self, delta: f64) -> Result<Epsilon, DpError> {
        self.session.with_engine(|engine| engine.privacy_spent(delta))
    }

    /// Returns the privacy statement of everything that was released so far.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`privacy_spent`](Self::privacy_spent), and an error if `deltas` is
    /// empty.
    pub fn statement(&self, deltas: &[f64]) -> Result<PrivacyStatement, DpError> {
        self.session.with_engine(|engine| engine.statement(deltas))
    }

    /// Erases the key of the run; see
    /// [`DpOptimizer::forget_key`](crate::optim::DpOptimizer::forget_key). Call this after the
    /// model of the result is saved. The loaders and models of the training run keep copies in
    /// memory until they are dropped.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Io`] if the file of the key cannot be erased.
    pub fn forget_key(&self) -> Result<(), DpError> {
        self.session.configure(forget_key)
    }

    /// Returns the metric of the current ε, for the dashboard. Public.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if δ is 1 / dataset size or more.
    pub fn epsilon_metric(&self, delta: f64) -> Result<EpsilonMetric, DpError> {
        self.session.with_engine(|engine| engine.plan.check_delta(delta))?;
        Ok(EpsilonMetric::new(delta, self.session.steps_per_epoch, Arc::downgrade(&self.session)))
    }

    /// Returns the metric of the clipping norm, for the dashboard. Public.
    pub fn clipping_norm_metric(&self) -> ClippingNormMetric {
        ClippingNormMetric::new()
    }

    /// Returns the metric of the signal-to-noise ratio, for the dashboard. Post-processing of the
    /// releases.
    pub fn signal_to_noise_metric(&self) -> SignalToNoiseMetric {
        self.session.configure(|engine| engine.measures_signal = true);
        SignalToNoiseMetric::new()
    }

    /// Returns the metric of the exact share of clipped units.
    ///
    /// # Privacy
    ///
    /// Not private: it has no noise. Show it only to people who may see the data.
    pub fn clipped_share_metric(&self) -> ClippedShareMetric {
        ClippedShareMetric::new()
    }

    /// Returns a Burn metric on the training batches, such as their loss.
    ///
    /// # Privacy
    ///
    /// Not private: it has no noise. Show it only to people who may see the data. Burn's loggers
    /// store it in the folder of the training.
    pub fn non_private_metric<Me: Metric>(&self, metric: Me) -> NonPrivateMetric<Me> {
        self.session.keeps_outputs.store(true, Ordering::Relaxed);
        NonPrivateMetric::new(metric)
    }
}

/// Returns the default strategy of Burn.
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
