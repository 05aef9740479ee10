use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Tensor;

use super::engine::PrivacyEngine;
use super::{Independence, RefusedStep, Sparsifier, WeightAverage};
use crate::DpError;
use crate::clipping::{ClippedSum, PublicNorms, Thresholds};
use crate::grads::PrivateBackward;
use crate::model::tie;
use crate::sampling::{Draw, ExampleWeights};

/// A Burn optimizer behind clipping, noise and a ledger.
///
/// One logical step is: [`backward`](Self::backward) once for every physical batch of the draw, none if
/// the draw is empty, then [`step`](Self::step) with the draw, which is consumed.
///
/// # Privacy
///
/// Each step releases one noisy sum of clipped per-example gradients over the trained parameters,
/// divided by the expected batch size of the plan. The event that enters the ledger is made of the very
/// numbers that the sampler and the mechanism use. A step is refused, before any release, when it would
/// break the budget, when the draw is not that of the sampler that the plan accounts for, when it is
/// not the next one, or when the examples that were seen are not as many as were drawn. Which examples they
/// were, the losses do not tell: give each [chunk](crate::sampling::LogicalBatch::chunks) of the batch to
/// [`backward`](Self::backward) once. One of them given twice in place of another one as large is not noticed, and
/// then a unit contributes up to twice the sensitivity.
///
/// What the inner optimizer does with the noisy gradient is post-processing: momentum, adaptive rates,
/// weight decay, also Burn's own gradient clipping, which is not private clipping.
///
/// # Empty batches
///
/// A Poisson draw may be empty. Whether it is, is decided on the host: an empty draw has no
/// [chunk](crate::sampling::LogicalBatch::chunks), so no layer sees a tensor without rows, which not every
/// backend can compute with, and the step is noise alone. Losses without rows are taken all the same, where
/// a model of one's own computed them: they add nothing.
///
/// # Example
///
/// ```
/// # use burn::{data::{dataloader::batcher::Batcher, dataset::InMemDataset}, module::Module, optim::SgdConfig, nn::LinearConfig, tensor::{Device, Tensor}};
/// # use burn_dp::{DpError, nn::IntoPrivate, optim::PrivacyPlanConfig, losses::MseLoss};
/// # use burn_dp_accountant::Budget;
/// # struct Rows;
/// # impl Batcher<f32, Tensor<2>> for Rows {
/// #     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<2> {
/// #         Tensor::<1>::from_floats(items.as_slice(), device).unsqueeze_dim(1)
/// #     }
/// # }
/// # fn main() -> Result<(), DpError> {
/// let device = Device::flex().autodiff();
/// let dataset = InMemDataset::new((0..1000).map(|i| i as f32 / 1000.0).collect());
/// let mut model = LinearConfig::new(1, 1).init(&device).private();
///
/// let plan = PrivacyPlanConfig::new(1000, 50.0)
///     .with_steps(20)
///     .with_budget(Budget::new(3.0, 1e-5)?)
///     .init()?;
/// let batches = plan.batches(dataset, Rows, &device)?;
/// let mut optim = plan.optimizer(SgdConfig::new().init());
///
/// for batch in batches {
///     let batch = batch?;
///     for chunk in batch.chunks(16)? {
///         let (x, _) = chunk?.into_parts();
///         let losses = (model.forward(x.clone()) - x * 2.0).powi_scalar(2).reshape([-1]);
///         optim.backward(losses, &model)?;
///     }
///     model = optim.step(0.1, model, batch)?;
/// }
/// assert!(optim.privacy_spent(1e-5)?.upper <= 3.0);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// Abadi et al., Deep learning with differential privacy, 2016, algorithm 1.
pub struct DpOptimizer {
    pub(crate) engine: PrivacyEngine,
    pub(crate) inner: ModuleOptimizer,
    pub(crate) sparsifier: Option<Sparsifier>,
    pub(crate) average: Option<WeightAverage>,
}

impl DpOptimizer {
    pub(crate) fn new(engine: PrivacyEngine, inner: ModuleOptimizer) -> Self {
        Self { engine, inner, sparsifier: None, average: None }
    }

    /// Options of the backward pass.
    pub fn with_backward(mut self, backward: PrivateBackward) -> Self {
        self.engine.backward = backward;
        self
    }

    /// Whether the backward passes of the first step test that loss i depends on example i alone. Default:
    /// they do, at the cost of reading one number for each example and layer; the result of the step is
    /// the same. The [statement](Self::statement) says whether it was tested.
    ///
    /// # Privacy
    ///
    /// Found is what mixes the examples of a batch between private layers, or between them and the loss,
    /// on those batches, if a quarter of the examples shows it. What mixes them before the first private
    /// layer is not found, nor can anything be found in physical batches of a few examples or in models
    /// of half precision.
    pub fn with_independence_check(mut self, enabled: bool) -> Self {
        self.engine.independence.set_enabled(enabled);
        self
    }

    /// Whether the independence of the examples was tested.
    pub fn independence(&self) -> Independence {
        self.engine.independence.found()
    }

    /// Clips the examples of one physical batch and adds them to the logical batch.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`, one per example
    ///
    /// # Errors
    ///
    /// As [`PrivateBackward::run`], and [`DpError::UnsupportedModel`] when a value that is not trained
    /// changed between the first two calls. Nothing was added then; [`discard`](Self::discard) the logical
    /// batch before working it off again.
    pub fn backward<M: Module>(&mut self, losses: Tensor<1>, model: &M) -> Result<(), DpError> {
        self.clip(losses, None, model)
    }

    /// The same for a physical batch with padding rows, which count for nothing.
    ///
    /// # Errors
    ///
    /// As [`backward`](Self::backward), and for weights of another length than the losses.
    pub fn backward_padded<M: Module>(
        &mut self,
        losses: Tensor<1>,
        weights: &ExampleWeights,
        model: &M,
    ) -> Result<(), DpError> {
        self.clip(losses, Some(weights), model)
    }

    fn clip<M: Module>(
        &mut self,
        losses: Tensor<1>,
        weights: Option<&ExampleWeights>,
        model: &M,
    ) -> Result<(), DpError> {
        let (sum, probe) = self.engine.clip_task(model)?.run(losses, weights, model);
        self.engine.end_task(probe);
        self.engine.accumulate(sum?)
    }

    /// What the logical step under way clips to: the same until [`step`](Self::step) or
    /// [`discard`](Self::discard).
    ///
    /// # Errors
    ///
    /// When the policy has no thresholds for the step.
    pub fn thresholds(&mut self) -> Result<Thresholds, DpError> {
        self.engine.thresholds()
    }

    /// Adds a clipped sum that was made outside, over further examples of the same draw.
    ///
    /// # Errors
    ///
    /// Refuses a sum that was clipped to other thresholds than those of the
    /// [logical step](Self::thresholds).
    pub fn accumulate(&mut self, sum: ClippedSum) -> Result<(), DpError> {
        self.engine.accumulate(sum)
    }

    /// Gives the clipping policy norms of gradients on public data, between two steps.
    ///
    /// # Errors
    ///
    /// Refuses norms within a logical step, and norms that the policy has no use for.
    pub fn learn_from_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        self.engine.learn_from_public(norms)
    }

    /// Forgets what was accumulated since the last step. Nothing of it was released.
    pub fn discard(&mut self) {
        self.engine.discard();
    }

    /// Adds the noise, enters the release into the ledger, and updates the model.
    ///
    /// # Arguments
    ///
    /// - `lr`: learning rate, as in Burn
    /// - `model`: the model that computed the losses
    /// - `draw`: the logical batch, or its draw; it is used up
    ///
    /// # Errors
    ///
    /// [`RefusedStep`] gives the model back.
    ///
    /// Unchanged, and nothing was released: [`DpError::BudgetExhausted`] when the step would break the budget,
    /// and [`DpError::InvalidState`] when the draw does not fit or the step lies beyond the planned ones. A step
    /// that is made again after a resumption is refused unless it is the one that was released, bit for bit; see
    /// [`Checkpointer`](super::Checkpointer).
    ///
    /// Unchanged after an error of the device or of the log of releases: the release was not made, though it may
    /// be in the ledger, and the noise of the step is used up; resume from the last checkpoint.
    ///
    /// After the release, which is in the ledger, when a sparsifier or a weight average cannot take the model: the
    /// model that comes back has made the step.
    pub fn step<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        model: M,
        draw: impl Into<Draw>,
    ) -> Result<M, Box<RefusedStep<M>>> {
        let lr = lr.into();
        match self.engine.release(&model, &draw.into()) {
            Ok(Some(grads)) => {
                let model = self.inner.step(lr.clone(), model, grads);
                // Burn's optimizers update the first copy of a tied parameter.
                let (model, error) = match self.sparsified(model, &lr) {
                    Ok(model) => (tie(model), None),
                    Err((model, error)) => (tie(model), Some(error)),
                };
                match error.map_or_else(|| self.average_step(&model), Err) {
                    Ok(()) => Ok(model),
                    Err(error) => Err(RefusedStep::new(model, error)),
                }
            }
            // Nothing but counts was released.
            Ok(None) => Ok(model),
            Err(error) => Err(RefusedStep::new(model, error)),
        }
    }
}

impl std::fmt::Debug for DpOptimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DpOptimizer")
            .field("plan", &self.engine.plan)
            .field("next_step", &self.engine.next_step)
            .finish_non_exhaustive()
    }
}
