//! The user's model as Burn's learner sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor};
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::store::{ModuleRecord, RecordError};
use burn::tensor::{Device, Tensor};
use burn::train::{InferenceStep, ItemLazy, Learner, TrainOutput, TrainStep};

use super::session::Session;
use super::unit_output::UnitOutput;
use super::{PrivateBatch, StepOutput};
use crate::DpError;
use crate::clipping::PublicNorms;
use crate::device_read::wait;
use crate::optim::engine::{EngineAccess, PrivacyEngine, Rows, clip_rows, clip_units, end_units};
use crate::optim::{LossFunction, PublicSchedule};
use crate::random::{Domain, Stream};
use crate::updates::UnitUpdate;
use crate::updates::federated::UserUpdate;

/// Measures norms of gradients on public data.
type Measure<M> = dyn Fn(&M) -> Result<PublicNorms, DpError> + Send + Sync;

/// Computes the update of one unit, with a copy of the model. Outputs are kept if there is a list.
type Update<M> = dyn Fn(
        M,
        <M as PrivateTrainStep>::Input,
        Unit,
        Option<&mut Vec<<M as PrivateTrainStep>::Output>>,
    ) -> Result<UnitUpdate, DpError>
    + Send
    + Sync;

/// A drawn unit.
#[derive(Clone, Copy)]
struct Unit {
    step: u64,
    index: usize,
}

/// The training step of a model for private training: per-example losses, in place of Burn's
/// `TrainStep`.
///
/// # Example
///
/// ```
/// use burn::module::Module;
/// use burn::nn::Linear;
/// use burn::tensor::Tensor;
/// use burn::train::RegressionOutput;
/// use burn_dp::losses::MseLossConfig;
/// use burn_dp::nn::Private;
/// use burn_dp::train::PrivateTrainStep;
///
/// #[derive(Module, Debug)]
/// struct Net {
///     fc: Private<Linear>,
/// }
///
/// impl PrivateTrainStep for Net {
///     type Input = (Tensor<2>, Tensor<2>);
///     type Output = RegressionOutput;
///
///     fn losses(&self, (x, y): Self::Input) -> (Tensor<1>, Self::Output) {
///         let output = self.fc.forward(x);
///         let losses = MseLossConfig::new().init().forward(output.clone(), y.clone());
///         (losses.clone(), RegressionOutput::new(losses, output, y))
///     }
/// }
/// ```
pub trait PrivateTrainStep: Module {
    /// The output of the batcher for the units of a physical batch.
    type Input: Send + 'static;
    /// The input of metrics of the training, if there are
    /// [any](super::PrivateTraining::non_private_metric).
    type Output: ItemLazy + 'static;

    /// Returns the losses of one physical batch, and the output for metrics.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`, loss i depends on example i alone
    fn losses(&self, batch: Self::Input) -> (Tensor<1>, Self::Output);
}

/// A model that Burn's `SupervisedTraining` trains privately; created by
/// [`PrivateTraining::model`](super::PrivateTraining::model).
///
/// It is transparent: parameters and records have the paths of the wrapped model.
///
/// A training step clips the gradients of the rows of physical batches, unless the model has
/// [unit updates](Self::with_unit_updates) or [user updates](Self::with_user_updates).
///
/// # Privacy
///
/// A training step records and clips, on any number of threads. The optimizer's step releases: it
/// checks that every drawn unit was clipped once, records the release in the ledger, adds the noise
/// once, adapts the thresholds, and passes the noisy gradient to the optimizer. Burn's gradients
/// are not used. The copies that the loop makes share the privacy state of the run. The model only
/// loads a record from the checkpoint that the run was resumed from.
pub struct PrivateModel<M: PrivateTrainStep> {
    model: M,
    session: Arc<Session>,
    public_norms: Option<Arc<Measure<M>>>,
    update: Option<Arc<Update<M>>>,
}

impl<M: PrivateTrainStep> PrivateModel<M> {
    pub(super) fn new(model: M, session: Arc<Session>) -> Self {
        Self { model, session, public_norms: None, update: None }
    }

    /// Clips one update for each unit, instead of the gradients of the rows of a batch. Use it for
    /// batch clipping, general batch clipping, and models without private layers. The counterpart
    /// of [`DpOptimizer::unit_updates`](crate::optim::DpOptimizer::unit_updates).
    ///
    /// The loader's batcher receives the units one at a time, regardless of the physical batch
    /// size.
    ///
    /// # Arguments
    ///
    /// - `update`: receives a separate copy of the model, and the batch of one unit. It returns the
    ///   update, or a pair of the update and the output for
    ///   [`NonPrivateMetric`](super::metrics::NonPrivateMetric), which has no values without it
    ///
    /// # Privacy
    ///
    /// See [`clip_updates`](crate::updates::clip_updates): the update of a unit may depend only on
    /// this unit and on public values.
    ///
    /// # Example
    ///
    /// Batch clipping: the update of a mini-set is its mean gradient.
    ///
    /// ```
    /// # use burn_dp::DpError;
    /// # use burn_dp::train::{PrivateModel, PrivateTrainStep};
    /// # use burn_dp::updates::UnitUpdate;
    /// # fn batch_clipping<M: PrivateTrainStep>(model: PrivateModel<M>) -> PrivateModel<M> {
    /// model.with_unit_updates(|copy, mini_set| {
    ///     let (losses, _) = copy.losses(mini_set);
    ///     UnitUpdate::gradient(&copy, losses)
    /// })
    /// # }
    /// ```
    pub fn with_unit_updates<R: UnitOutput<M::Output>>(
        mut self,
        update: impl Fn(M, M::Input) -> Result<R, DpError> + Send + Sync + 'static,
    ) -> Self {
        self.session.configure(PrivacyEngine::end_user_updates);
        self.update = Some(Arc::new(move |copy, unit, _, outputs| {
            let (update, output) = update(copy, unit)?.into_parts();
            if let Some(outputs) = outputs {
                outputs.extend(output);
            }
            Ok(update)
        }));
        self
    }

    /// Clips one update for each user: federated averaging or federated SGD. The result equals
    /// [`FederatedTraining`](crate::optim::FederatedTraining) with the optimizer of the learner as
    /// the server.
    ///
    /// The items of the data set are users, with the examples of each, and the batcher returns the
    /// examples of the one user that it receives; [`losses`](PrivateTrainStep::losses) receives
    /// some of them.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the unit of the plan is not the user.
    pub fn with_user_updates<I>(mut self, update: UserUpdate) -> Result<Self, DpError>
    where
        M: PrivateTrainStep<Input = Vec<I>>,
        I: Clone + 'static,
    {
        let key = self.session.configure(|engine| engine.begin_user_updates(&update))?;
        self.update = Some(Arc::new(move |copy, examples, unit, mut outputs| {
            let order = Stream::new(&key, Domain::Shuffling, unit.step, unit.index as u64);
            let losses = |model: &M, batch| {
                let (losses, output) = model.losses(batch);
                if let Some(outputs) = &mut outputs {
                    outputs.push(output);
                }
                Ok(losses)
            };
            update.compute(copy, examples, order, losses)
        }));
        Ok(self)
    }

    /// Measures norms of gradients on public data after the last step of every epoch except the
    /// last one, and passes them to the clipping policy, for adaptive layerwise clipping or
    /// multipliers for each layer. This happens between two steps, on the thread of Burn's loop,
    /// before the checkpoint of the epoch.
    ///
    /// An error of `measure`, or norms that the policy does not use, end the training.
    ///
    /// # Arguments
    ///
    /// - `measure`: receives the model that is trained, not an average of its weights. The result
    ///   must depend only on the model: a step that is repeated after a resumption is rejected if
    ///   the norms differ
    ///
    /// # Privacy
    ///
    /// The data must be public, because no noise is added to the norms.
    pub fn with_public_norms(
        mut self,
        measure: impl Fn(&M) -> Result<PublicNorms, DpError> + Send + Sync + 'static,
    ) -> Self {
        self.public_norms = Some(Arc::new(measure));
        self
    }

    /// Returns Burn's learner, with a learning rate that depends on public values alone.
    ///
    /// # Privacy
    ///
    /// Burn's `Learner::new` accepts the model as well, with any scheduler: one that follows the
    /// training loss, or private validation data, releases them without noise.
    pub fn learner(self, optimizer: ModuleOptimizer, schedule: PublicSchedule) -> Learner<Self>
    where
        M: InferenceStep + fmt::Display + 'static,
    {
        Learner::new(self, optimizer, schedule.into_scheduler())
    }

    /// Returns the model inside.
    pub fn into_inner(self) -> M {
        self.model
    }

    /// Returns the wrapped model.
    pub fn inner(&self) -> &M {
        &self.model
    }

    fn map_inner(self, map: impl FnOnce(M) -> M) -> Self {
        Self { model: map(self.model), ..self }
    }

    /// Returns another model with the same session and options.
    fn with_model(&self, model: M) -> Self {
        Self {
            model,
            session: self.session.clone(),
            public_norms: self.public_norms.clone(),
            update: self.update.clone(),
        }
    }

    /// Clips one part of a logical batch. Returns the outputs, if a metric uses them.
    fn clip(&self, batch: &PrivateBatch<M::Input>) -> Result<Vec<M::Output>, DpError> {
        let keeps_outputs = self.session.keeps_outputs.load(Ordering::Relaxed);
        let mut outputs = Vec::new();
        match &self.update {
            Some(update) => {
                wait(self.clip_units(batch, &**update, keeps_outputs.then_some(&mut outputs)))?;
            }
            None => {
                let rows = Rows {
                    batch: &batch.batch,
                    physical_batch_size: self.session.physical_batch_size,
                    part: batch.part,
                    device: batch.device.clone(),
                    losses: &M::losses,
                    function: LossFunction::of::<M>(),
                };
                let keep = |output| outputs.extend(keeps_outputs.then_some(output));
                wait(clip_rows(&mut &*self.session, &self.model, rows, keep))?;
            }
        }
        Ok(outputs)
    }

    /// Clips the updates of the units of one part of a logical batch.
    async fn clip_units(
        &self,
        batch: &PrivateBatch<M::Input>,
        update: &Update<M>,
        mut outputs: Option<&mut Vec<M::Output>>,
    ) -> Result<(), DpError> {
        let mut run = &*self.session;
        let mut any = false;
        for unit in batch.batch.part(1, batch.part, batch.device.clone())? {
            let (input, part) = unit?.into_parts();
            if run.is_over() {
                break;
            }
            let update = |copy, input, index| {
                update(copy, input, Unit { step: part.step(), index }, outputs.as_deref_mut())
            };
            let sum = clip_units(&mut run, &self.model, [input], &part, update).await?;
            run.add(part, sum)?;
            any = true;
        }
        if any {
            end_units(&mut run, &self.model).await?;
        }
        Ok(())
    }
}

impl<M: PrivateTrainStep> Clone for PrivateModel<M> {
    fn clone(&self) -> Self {
        self.with_model(self.model.clone())
    }
}

impl<M: PrivateTrainStep> TrainStep for PrivateModel<M> {
    type Input = PrivateBatch<M::Input>;
    type Output = StepOutput<M::Output>;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        let outputs = self.clip(&batch).unwrap_or_else(|error| {
            self.session.fail(error);
            Vec::new()
        });
        let item = StepOutput { slot: batch.slot, outputs };
        TrainOutput { grads: GradientsParams::new(), item }
    }

    fn optimize(
        self,
        optim: &mut ModuleOptimizer,
        lr: ModuleLearningRate,
        _none: GradientsParams,
    ) -> Self {
        let (model, ends_epoch) = self.session.step(self.model, optim, lr);
        if let Some(measure) = &self.public_norms
            && ends_epoch
            && let Err(error) =
                measure(&model).and_then(|norms| self.session.learn_from_public(&norms))
        {
            self.session.fail(error);
        }
        Self { model, ..self }
    }

    /// Performs one release for all devices. Burn's default does not call
    /// [`optimize`](TrainStep::optimize).
    fn optimize_multi(
        self,
        optim: &mut ModuleOptimizer,
        lr: ModuleLearningRate,
        _none: MultiGradientsParams,
    ) -> Self {
        self.optimize(optim, lr, GradientsParams::new())
    }
}

impl<M: PrivateTrainStep + InferenceStep> InferenceStep for PrivateModel<M> {
    type Input = <M as InferenceStep>::Input;
    type Output = <M as InferenceStep>::Output;

    fn step(&self, item: Self::Input) -> Self::Output {
        InferenceStep::step(&self.model, item)
    }
}

impl<M: PrivateTrainStep> Module for PrivateModel<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.model.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.map_inner(|model| model.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.map_inner(|model| model.to_device(device))
    }

    fn train(self) -> Self {
        self.map_inner(Module::train)
    }

    /// Returns the model that Burn validates and returns: with the averaged weights, if the run
    /// [has](super::PrivateTrainingConfig::with_weight_average) them.
    fn valid(&self) -> Self {
        self.session.check_buffers(&self.model);
        let averaged = self.session.averaged(&self.model);
        self.with_model(averaged.as_ref().unwrap_or(&self.model).valid())
    }

    fn materialize(self) -> Self {
        self.map_inner(Module::materialize)
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        self.model.visit(visitor);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        self.map_inner(|model| model.map(mapper))
    }

    /// Loads a record of the run. A record without the privacy state of the run would restore spent
    /// budget, so it ends the training.
    fn try_load_record(self, record: ModuleRecord) -> Result<Self, RecordError> {
        if !self.session.expects_record.swap(false, Ordering::Relaxed) {
            self.session.fail(DpError::state(
                "a checkpoint was loaded without the ledger that belongs to it; let \
                 `PrivateTrainingConfig::resume` find the checkpoint, and load parameters that are \
                 public into the model before it is wrapped",
            ));
        }
        let Self { model, session, public_norms, update } = self;
        Ok(Self { model: model.try_load_record(record)?, session, public_norms, update })
    }
}
