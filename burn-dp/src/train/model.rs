//! The user's model as Burn's learner sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{
    Content, Devices, DisplaySettings, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor,
};
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::store::{ModuleRecord, RecordError};
use burn::tensor::{Device, Tensor};
use burn::train::{InferenceStep, ItemLazy, TrainOutput, TrainStep};

use super::session::Session;
use super::{PrivateBatch, StepOutput};
use crate::DpError;
use crate::clipping::PublicNorms;

/// Measures norms of gradients on public data.
type Measure<M> = dyn Fn(&M) -> Result<PublicNorms, DpError> + Send + Sync;

/// What a private training asks of a model: per-example losses, in place of Burn's `TrainStep`.
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
    /// What the batcher makes of the units of a virtual batch.
    type Input: Send + 'static;
    /// What metrics of the training see, if any [asks](super::PrivateTraining::non_private_metric).
    type Output: ItemLazy + 'static;

    /// The forward pass of one virtual batch.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`, loss i depends on example i alone
    fn losses(&self, batch: Self::Input) -> (Tensor<1>, Self::Output);
}

/// A model that Burn's `SupervisedTraining` trains privately; made by
/// [`PrivateTraining::model`](super::PrivateTraining::model).
///
/// It is transparent: parameters and records have the paths of the model inside.
///
/// # Privacy
///
/// A training step records and clips, on any number of threads. The optimizer's step releases: it
/// checks that every drawn unit was seen once, enters the release into the ledger, adds the noise
/// once, adapts the thresholds and gives the noisy gradient to the optimizer. Burn's gradients are
/// not used. The copies that the loop makes share the privacy of the run. Loading a record into it
/// is refused unless it comes from the checkpoint that the run was resumed from.
#[derive(Clone)]
pub struct PrivateModel<M> {
    model: M,
    session: Arc<Session>,
    public_norms: Option<Arc<Measure<M>>>,
}

impl<M> PrivateModel<M> {
    pub(super) fn new(model: M, session: Arc<Session>) -> Self {
        Self { model, session, public_norms: None }
    }

    /// Measures norms of gradients on public data after the last step of every epoch which another
    /// one follows, and gives them to the clipping policy: adaptive layerwise clipping, multipliers
    /// for each layer. Between two steps, on the thread of Burn's loop, before the checkpoint of
    /// the epoch.
    ///
    /// An error of `measure`, or norms that the policy has no use for, end the training.
    ///
    /// # Arguments
    ///
    /// - `measure`: gets the model that is trained, not an average of its weights. A step that is
    ///   made again after a resumption is refused if the norms are others, so it depends on the
    ///   model alone
    ///
    /// # Privacy
    ///
    /// The data must be public: the norms get no noise.
    pub fn with_public_norms(
        mut self,
        measure: impl Fn(&M) -> Result<PublicNorms, DpError> + Send + Sync + 'static,
    ) -> Self {
        self.public_norms = Some(Arc::new(measure));
        self
    }

    /// The model inside.
    pub fn into_inner(self) -> M {
        self.model
    }

    /// The model inside.
    pub fn inner(&self) -> &M {
        &self.model
    }

    fn map_inner(self, map: impl FnOnce(M) -> M) -> Self {
        Self { model: map(self.model), ..self }
    }
}

impl<M: PrivateTrainStep> PrivateModel<M> {
    /// Clips the virtual batches of one part of a logical batch.
    fn clip(&self, batch: &PrivateBatch<M::Input>) -> Result<Vec<M::Output>, DpError> {
        let keeps_outputs = self.session.keeps_outputs.load(Ordering::Relaxed);
        let mut outputs = Vec::new();
        let (part, parts) = batch.part;
        for (turn, chunk) in batch.chunks(self.session.physical_batch_size)?.enumerate() {
            let (input, weights) = chunk?.into_parts();
            let (losses, output) = self.model.losses(input);
            let Some(task) = self.session.clip_task(&self.model)? else { break };
            let padded = weights.is_padding().any(|padding| padding);
            let clipped = task.run(losses, padded.then_some(&weights), &self.model);
            self.session.add(batch.step(), part + turn * parts, clipped)?;
            if keeps_outputs {
                outputs.push(output);
            }
        }
        Ok(outputs)
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
        let (model, ends_epoch) = self.session.release(self.model, optim, lr);
        if let Some(measure) = &self.public_norms
            && ends_epoch
            && let Err(error) =
                measure(&model).and_then(|norms| self.session.learn_from_public(&norms))
        {
            self.session.fail(error);
        }
        Self { model, ..self }
    }

    /// One release for all devices. Burn's own would go round [`optimize`](TrainStep::optimize).
    fn optimize_multi(
        self,
        optim: &mut ModuleOptimizer,
        lr: ModuleLearningRate,
        _none: MultiGradientsParams,
    ) -> Self {
        self.optimize(optim, lr, GradientsParams::new())
    }
}

impl<M: InferenceStep> InferenceStep for PrivateModel<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, item: Self::Input) -> Self::Output {
        self.model.step(item)
    }
}

impl<M: Module> Module for PrivateModel<M> {
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

    /// With the averaged weights, where the run
    /// [has](super::PrivateTrainingConfig::with_weight_average) them: what Burn validates and
    /// returns.
    fn valid(&self) -> Self {
        let averaged = self.session.averaged(&self.model);
        Self {
            model: averaged.as_ref().unwrap_or(&self.model).valid(),
            session: self.session.clone(),
            public_norms: self.public_norms.clone(),
        }
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

    /// A record that comes without the privacy of the run would give its budget back.
    fn try_load_record(self, record: ModuleRecord) -> Result<Self, RecordError> {
        if !self.session.expects_record.swap(false, Ordering::Relaxed) {
            self.session.fail(DpError::state(
                "a checkpoint was loaded without the ledger that belongs to it; let \
                 `PrivateTrainingConfig::resume` find the checkpoint, and load parameters that are \
                 public into the model before it is wrapped",
            ));
        }
        let Self { model, session, public_norms } = self;
        Ok(Self { model: model.try_load_record(record)?, session, public_norms })
    }
}

impl<M: fmt::Debug> fmt::Debug for PrivateModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrivateModel").field(&self.model).finish()
    }
}

impl<M: fmt::Display> fmt::Display for PrivateModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.model.fmt(f)
    }
}

impl<M: ModuleDisplay> ModuleDisplayDefault for PrivateModel<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.model.content(content)
    }

    fn num_params(&self) -> usize {
        ModuleDisplayDefault::num_params(&self.model)
    }
}

impl<M: ModuleDisplay> ModuleDisplay for PrivateModel<M> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.model.custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.model.custom_content(content)
    }
}
