//! The private optimizer.
//!
//! Length: one method for each call of a program, most of which only pass it to the engine.

use std::sync::Once;

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::{FloatDType, Tensor};
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

use super::engine::{PrivacyEngine, Rows, clip_part, clip_rows, clip_units, computing, end_units};
use super::independence::{Independence, IndependenceCheck, LossFunction};
use super::{PrivacyPlan, RefusedStep, Sparsifier, WeightAverage};
use crate::clipping::{ClippedSum, ClippingStatistics, PublicNorms, Thresholds};
use crate::device_read::blocking;
use crate::grads::PrivateBackward;
use crate::sampling::{Draw, DrawPart, LogicalBatch, PhysicalBatch, RecordIdentity};
use crate::updates::UnitUpdate;
use crate::{DpError, NonPrivate, PublicData};

/// A Burn optimizer with clipping, noise, and a ledger.
///
/// One logical step calls [`backward`](Self::backward) once for every physical batch of the draw
/// (never if the draw is empty), then [`step`](Self::step) with the draw, which is consumed.
///
/// Use [`save`](Self::save) and [`load`](Self::load) for a folder of checkpoints, and
/// [`to_record`](Self::to_record) and [`load_record`](Self::load_record) for bytes.
///
/// # Privacy
///
/// Each step releases one noisy sum of clipped per-example gradients over the trained parameters,
/// divided by the expected batch size of the plan. The event that enters the ledger is built from
/// the same numbers that the sampler and the mechanism use. A step is rejected, before any release,
/// in these cases:
///
/// - it would exceed the budget, or follows the last planned step;
/// - the draw does not come from the plan's sampler, or is out of order;
/// - a drawn unit was not clipped.
///
/// Every [physical batch](crate::sampling::PhysicalBatch) carries the mark of its draw and is
/// consumed, so [`backward`](Self::backward) rejects a unit that was not drawn or was already
/// added.
///
/// Everything that the inner optimizer does with the noisy gradient is post-processing: momentum,
/// adaptive rates, weight decay, and also Burn's own gradient clipping, which is not private
/// clipping.
///
/// # Empty batches
///
/// A Poisson draw may be empty. This is handled on the host: an empty draw has no [physical
/// batch](crate::sampling::LogicalBatch::physical_batches), so no layer receives a tensor without
/// rows, which some backends do not support, and the step is noise alone.
///
/// # Example
///
/// ```
/// # use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
/// # use burn::{module::Module, nn::LinearConfig, optim::SgdConfig, tensor::{Device, Tensor}};
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
///     for physical_batch in batch.physical_batches(16)? {
///         optim.backward(&model, physical_batch?, |model, x| {
///             (model.forward(x.clone()) - x * 2.0).powi_scalar(2).reshape([-1])
///         })?;
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
}

impl DpOptimizer {
    /// Sets the options of the backward pass.
    pub fn with_backward(mut self, backward: PrivateBackward) -> Self {
        self.engine.backward = backward;
        self
    }

    /// Computes the losses and their gradients in another precision than the parameters have
    /// (mixed precision), for example `FloatDType::BF16`. The parameters, the norms, the clipped
    /// sum, the noise and the state of the optimizer keep theirs.
    ///
    /// The model that computes the losses has this precision: cast its inputs to it, and its
    /// outputs to single precision before the loss. Updates of units
    /// ([`unit_updates`](Self::unit_updates)) are not affected.
    ///
    /// # Privacy
    ///
    /// The guarantee is the same: each contribution is clipped by its norm in single precision. The
    /// statement names the precision, as it does for a model whose parameters or losses have less
    /// than single precision. The gradient test cannot detect anything in half precision;
    /// the [test by value](Self::backward_batch) allows for its rounding.
    ///
    /// # References
    ///
    /// P. Micikevicius et al., Mixed precision training, 2018.
    pub fn with_precision(mut self, precision: FloatDType) -> Self {
        self.engine.precision = Some(precision);
        self
    }

    /// Sets when the steps test that loss i depends on example i alone; `true` and `false` stand
    /// for the first step and for never. Default: the first step. The [statement](Self::statement)
    /// lists the tests that were run.
    ///
    /// # Privacy
    ///
    /// The test by value needs the loss function, so only [`backward_batch`](Self::backward_batch)
    /// runs it. It detects a dependence on other examples of the batch that changes the losses or
    /// the gradients of at least two examples by more than its tolerance: in single precision about
    /// a thousandth if most losses change, and a hundredth if a few do. Every function of losses is
    /// tested, but function pointers and trait objects of one type, called at one place, count as
    /// one function.
    ///
    /// The test by gradient also runs in [`backward`](Self::backward). It finds layers that mix the
    /// examples of a batch between private layers, or between them and the loss, if a quarter of
    /// the examples in the tested batches shows it. It cannot find values that depend on other
    /// examples without a gradient, or operations that mix them before the first private layer, and
    /// it detects nothing in physical batches of a few examples or in half-precision models.
    pub fn with_independence_check(mut self, check: impl Into<IndependenceCheck>) -> Self {
        self.engine.independence.set_schedule(check.into());
        self
    }

    /// After each step, fixes the weights that have converged.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if there already is a sparsifier, for example in an
    /// optimizer that was restored from the checkpoint of such a run.
    pub fn with_sparsifier(mut self, sparsifier: Sparsifier) -> Result<Self, DpError> {
        self.engine.set_sparsifier(sparsifier)?;
        Ok(self)
    }

    /// Averages the weights after each step, for evaluation. Checkpoints and records contain the
    /// average.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if there already is an average, for example in an
    /// optimizer that was restored from the checkpoint of such a run.
    pub fn with_weight_average(mut self, average: WeightAverage) -> Result<Self, DpError> {
        self.engine.set_average(average)?;
        Ok(self)
    }

    /// Clips the examples of one physical batch and adds them to the logical batch. To process a
    /// whole logical batch, and to test its losses by value, use
    /// [`backward_batch`](Self::backward_batch).
    ///
    /// Padding rows are ignored. A batch without units adds nothing, and `losses` is not called.
    ///
    /// # Arguments
    ///
    /// - `batch`: a [physical batch](crate::sampling::LogicalBatch::physical_batches) of the draw,
    ///   which is consumed. A loop that loads its data itself gives a
    ///   [part](crate::sampling::Draw::parts) of the draw, or the whole draw, and receives the
    ///   indices of its units
    /// - `losses`: returns one loss for each row, `[rows]`, computed with the model from the batch
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the batch belongs to another draw than the next step
    /// needs, or if one of its units was already added, [`DpError::InvalidArgument`] if its data
    /// set has [another unit](crate::sampling::DistinctRecords::unit) than the plan or [other
    /// records](crate::sampling::DistinctRecords::digest) than earlier steps, the errors of
    /// [`PrivateBackward::run`], [`DpError::NotPerExample`] if there is not one loss for each row,
    /// and [`DpError::ChangedBuffer`] if a value that is not trained changed since the first call.
    /// In that case nothing is added, and [`step`](Self::step) rejects the changed model;
    /// [`discard`](Self::discard) the logical batch before clipping it again.
    pub fn backward<M: Module, O>(
        &mut self,
        model: &M,
        batch: impl Into<PhysicalBatch<O>>,
        losses: impl FnOnce(&M, O) -> Tensor<1>,
    ) -> Result<(), DpError> {
        blocking(self.backward_async(model, batch, losses), "DpOptimizer::backward_async")
    }

    /// Runs [`backward`](Self::backward) without blocking the thread, as browsers require.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`backward`](Self::backward).
    pub async fn backward_async<M: Module, O>(
        &mut self,
        model: &M,
        batch: impl Into<PhysicalBatch<O>>,
        losses: impl FnOnce(&M, O) -> Tensor<1>,
    ) -> Result<(), DpError> {
        let (input, part) = batch.into().into_parts();
        self.engine.admission().check_part(&part)?;
        if part.rows() == 0 {
            return Ok(());
        }
        self.engine.independence.losses_alone();
        // Before the forward pass, which must not change values that are not trained.
        self.engine.buffers.begin(model).await?;
        let computing = computing(model, self.engine.precision)?;
        let losses = {
            let _scope = self.engine.unit_scope(&*computing, &part);
            losses(&computing, input)
        };
        clip_part(&mut self.engine, model, &computing, losses, part).await
    }

    /// Computes the losses of a logical batch, clips its examples, and adds them up. Every physical
    /// batch is processed once.
    ///
    /// Prefer it to [`backward`](Self::backward). Since it loads the units itself, the independence
    /// of the examples is also tested [by value](IndependenceCheck), on one physical batch,
    /// in the first step or as often as
    /// [`with_independence_check`](Self::with_independence_check) says. The test calls `losses` on
    /// other batches of the same units, and changes neither the model nor the draws nor the noise
    /// of the run.
    ///
    /// # Arguments
    ///
    /// - `physical_batch_size`: the maximum number of rows of a physical batch. On CubeCL devices,
    ///   all of them have the same number of rows unless the loader is configured
    ///   [otherwise](crate::sampling::PrivateDataLoaderBuilder::without_padding); padding rows are
    ///   ignored
    /// - `losses`: returns one loss for each row of a physical batch, computed with the model that
    ///   it receives. In a step that is tested it also receives batches with other numbers of rows,
    ///   of at most `physical_batch_size`, or three for two units
    ///
    /// # Errors
    ///
    /// Returns the errors of [`backward`](Self::backward) and of the loader, and
    /// [`DpError::NotPerExample`] if the test finds that a loss depends on other examples.
    /// [`discard`](Self::discard) the logical batch before clipping it again.
    ///
    /// # Example
    ///
    /// ```
    /// # use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
    /// # use burn::{nn::LinearConfig, optim::SgdConfig, tensor::{Device, Tensor}};
    /// # use burn_dp::{DpError, nn::IntoPrivate, optim::PrivacyPlanConfig};
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
    /// let config = PrivacyPlanConfig::new(1000, 50.0).with_steps(5).with_noise_multiplier(1.0);
    /// let plan = config.init()?;
    /// let batches = plan.batches(dataset, Rows, &device)?;
    /// let mut optim = plan.optimizer(SgdConfig::new().init());
    ///
    /// for batch in batches {
    ///     let batch = batch?;
    ///     optim.backward_batch(&model, &batch, 16, |model, x| {
    ///         (model.forward(x.clone()) - x * 2.0).powi_scalar(2).reshape([-1])
    ///     })?;
    ///     model = optim.step(0.1, model, batch)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn backward_batch<M: Module, O: Send + 'static>(
        &mut self,
        model: &M,
        batch: &LogicalBatch<O>,
        physical_batch_size: usize,
        losses: impl Fn(&M, O) -> Tensor<1>,
    ) -> Result<(), DpError> {
        let clipped = self.backward_batch_async(model, batch, physical_batch_size, losses);
        blocking(clipped, "DpOptimizer::backward_batch_async")
    }

    /// Runs [`backward_batch`](Self::backward_batch) without blocking the thread, as browsers
    /// require.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`backward_batch`](Self::backward_batch). If the future is dropped
    /// before its end, [`discard`](Self::discard) the logical batch before clipping it again.
    #[track_caller]
    pub fn backward_batch_async<M: Module, O: Send + 'static, F: Fn(&M, O) -> Tensor<1>>(
        &mut self,
        model: &M,
        batch: &LogicalBatch<O>,
        physical_batch_size: usize,
        losses: F,
    ) -> impl Future<Output = Result<(), DpError>> {
        let function = LossFunction::of::<F>();
        async move {
            // Before any forward pass, so that no pass of the test sets the values that later
            // passes are compared with.
            self.engine.buffers.begin(model).await?;
            let losses = |model: &M, input| (losses(model, input), ());
            let (part, device) = ((0, 1), None);
            let rows = Rows { batch, physical_batch_size, part, device, losses: &losses, function };
            clip_rows(&mut self.engine, model, rows, |()| ()).await
        }
    }

    /// Clips the updates of units of the draw and adds them to the logical batch: the counterpart
    /// of [`backward`](Self::backward) for units that are not rows of a batch.
    ///
    /// Every drawn unit takes part, even if its update is zero. An empty draw has no units:
    /// `update` is not called, and the step is noise alone.
    ///
    /// # Arguments
    ///
    /// - `units`: the draw, or a [part](crate::sampling::Draw::parts) of it; or a physical batch of
    ///   a batcher that returns the items as they are, `Vec<I>`
    /// - `update`: receives a separate copy of `model` and one unit: its index, or its item
    ///
    /// # Privacy
    ///
    /// See [`clip_updates`](crate::updates::clip_updates).
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the units belong to another draw than the next step
    /// needs, or if one of them was already added, [`DpError::InvalidArgument`] if a batcher
    /// returned another number of items or the data set has another unit or other records (see
    /// [`backward`](Self::backward)), the errors of
    /// [`clip_updates`](crate::updates::clip_updates), and [`DpError::ChangedBuffer`] if `update`
    /// changed a stored value of `model` itself. In that case nothing is added;
    /// [`discard`](Self::discard) the logical batch before clipping it again.
    ///
    /// # Example
    ///
    /// One backward pass for each example, without private layers:
    ///
    /// ```
    /// # use burn::nn::{Linear, LinearConfig};
    /// # use burn::{module::Module, optim::SgdConfig, tensor::{Device, Tensor}};
    /// # use burn_dp::DpError;
    /// # use burn_dp::optim::PrivacyPlanConfig;
    /// # use burn_dp::updates::UnitUpdate;
    /// # fn main() -> Result<(), DpError> {
    /// let device = Device::flex().autodiff();
    /// let model: Linear = LinearConfig::new(1, 1).init(&device);
    /// let config = PrivacyPlanConfig::new(100, 10.0).with_steps(1).with_noise_multiplier(1.0);
    /// let plan = config.init()?;
    /// let draw = plan.sampler()?.draw(0)?;
    /// let mut optim = plan.optimizer(SgdConfig::new().init());
    /// optim.unit_updates(&model, &draw, |model: Linear, example| {
    ///     let x = Tensor::<2>::full([1, 1], example as f32, &device);
    ///     let loss = (model.forward(x.clone()) - x).powi_scalar(2).reshape([1]);
    ///     UnitUpdate::gradient(&model, loss)
    /// })?;
    /// let model = optim.step(0.1, model, draw)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unit_updates<M: Module, U>(
        &mut self,
        model: &M,
        units: impl Into<PhysicalBatch<Vec<U>>>,
        update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
    ) -> Result<(), DpError> {
        blocking(self.unit_updates_async(model, units, update), "DpOptimizer::unit_updates_async")
    }

    /// Runs [`unit_updates`](Self::unit_updates) without blocking the thread, as browsers require.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`unit_updates`](Self::unit_updates).
    pub async fn unit_updates_async<M: Module, U>(
        &mut self,
        model: &M,
        units: impl Into<PhysicalBatch<Vec<U>>>,
        mut update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
    ) -> Result<(), DpError> {
        let (units, part) = units.into().into_parts();
        self.engine.admission().check_part(&part)?;
        if part.rows() == 0 {
            return Ok(());
        }
        if units.len() != part.rows() {
            let (items, rows) = (units.len(), part.rows());
            return Err(DpError::invalid(
                "units",
                format!("must be one item for each row, got {items} items for {rows} rows"),
            ));
        }
        self.engine.buffers.begin(model).await?;
        let update = |copy, unit, _| update(copy, unit);
        let sum = clip_units(&mut self.engine, model, units, &part, update).await?;
        end_units(&mut self.engine, model).await?;
        self.engine.accumulate(part, sum)
    }

    /// Runs one ordinary backward pass for each unit: the fallback for layers that have no
    /// per-example rule. It is exact for every model, and slower than a batched pass by a factor of
    /// about the batch size; [`validate`](crate::model::validate) lists the layers that need it.
    ///
    /// # Arguments
    ///
    /// - `units`: as in [`unit_updates`](Self::unit_updates)
    /// - `loss`: the loss of one unit, computed with the copy of the model that it receives.
    ///   Several values (the augmented copies of a unit, the tokens of a text) are averaged
    ///
    /// # Privacy
    ///
    /// The gradient of a unit is clipped as a whole, regardless of the layers involved; see
    /// [`clip_updates`](crate::updates::clip_updates).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`unit_updates`](Self::unit_updates), and [`DpError::NotPerExample`]
    /// if a loss does not depend on a trained parameter.
    ///
    /// # Example
    ///
    /// ```
    /// # use burn::{module::{Module, Param}, optim::SgdConfig, tensor::{Device, Tensor}};
    /// # use burn_dp::{DpError, optim::PrivacyPlanConfig};
    /// /// A layer without a rule: its weight is normalized before it is used.
    /// #[derive(Module, Debug)]
    /// struct Direction {
    ///     weight: Param<Tensor<1>>,
    /// }
    ///
    /// # fn main() -> Result<(), DpError> {
    /// let device = Device::flex().autodiff();
    /// let model = Direction { weight: Param::from_tensor(Tensor::ones([3], &device)) };
    /// let config = PrivacyPlanConfig::new(100, 10.0).with_steps(1).with_noise_multiplier(1.0);
    /// let plan = config.init()?;
    /// let draw = plan.sampler()?.draw(0)?;
    /// let mut optim = plan.optimizer(SgdConfig::new().init());
    /// optim.backward_each(&model, &draw, |model: &Direction, unit| {
    ///     let x = Tensor::<1>::full([3], unit as f32, &device);
    ///     let weight = model.weight.val();
    ///     let norm = weight.clone().square().sum().sqrt();
    ///     ((weight / norm * x).sum() - 1.0).powi_scalar(2)
    /// })?;
    /// let model = optim.step(0.1, model, draw)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn backward_each<M: Module, U>(
        &mut self,
        model: &M,
        units: impl Into<PhysicalBatch<Vec<U>>>,
        loss: impl FnMut(&M, U) -> Tensor<1>,
    ) -> Result<(), DpError> {
        blocking(self.backward_each_async(model, units, loss), "DpOptimizer::backward_each_async")
    }

    /// Runs [`backward_each`](Self::backward_each) without blocking the thread, as browsers
    /// require.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`backward_each`](Self::backward_each).
    pub async fn backward_each_async<M: Module, U>(
        &mut self,
        model: &M,
        units: impl Into<PhysicalBatch<Vec<U>>>,
        mut loss: impl FnMut(&M, U) -> Tensor<1>,
    ) -> Result<(), DpError> {
        static WARNING: Once = Once::new();
        WARNING.call_once(|| {
            log::warn!(
                "one backward pass is made for each unit (`backward_each`): exact, and slower than \
                 a batch by about the size of the batch"
            );
        });
        let gradient = |model: M, unit| UnitUpdate::gradient(&model, loss(&model, unit));
        self.unit_updates_async(model, units, gradient).await
    }

    /// Returns the clipping thresholds of the current logical step, which are fixed until
    /// [`step`](Self::step) or [`discard`](Self::discard).
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no thresholds for the step.
    pub fn thresholds(&mut self) -> Result<Thresholds, DpError> {
        self.engine.thresholds()
    }

    /// Adds the sum of the units of `part` that was clipped elsewhere.
    ///
    /// # Privacy
    ///
    /// The run cannot check that the sum has each unit once: the statement says so, and that the
    /// identity of the records was not checked.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the sum was clipped to other thresholds than the
    /// [logical step](Self::thresholds) has, or contains another number of units than `part`, and
    /// [`DpError::InvalidState`] if a unit was already added or belongs to another draw.
    pub fn accumulate(
        &mut self,
        part: impl Into<DrawPart>,
        sum: ClippedSum,
    ) -> Result<(), DpError> {
        self.engine.independence.sum_from_elsewhere();
        self.engine.note_sums_from_elsewhere();
        self.engine.accumulate(part.into().with_identity(RecordIdentity::NotChecked), sum)
    }

    /// Passes norms of gradients on public data to the clipping policy, between two steps.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] within a logical step, and an error if the policy does not
    /// use public norms.
    pub fn learn_from_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        self.engine.learn_from_public(norms)
    }

    /// Names public data in the [statement](Self::statement), and in checkpoints: data that
    /// influenced the result other than through the clipping policy, for example the running
    /// statistics of a BatchNorm.
    pub fn name_public_data<T>(&mut self, data: &PublicData<T>) {
        self.engine.name_public_data(data.origin());
    }

    /// Accepts the values of `model` that are not trained, after they were recomputed on public
    /// data between two steps, for example by
    /// [`public_statistics`](crate::updates::public_statistics). Any later change of them ends the
    /// run. Packed (quantized) values are compared with those at the start of the run.
    ///
    /// # Privacy
    ///
    /// The values are published with the model, without noise. The [statement](Self::statement)
    /// says that they were replaced, and names the data. Nothing checks that they were computed on
    /// the public data alone: recompute all of them.
    ///
    /// # Arguments
    ///
    /// - `data`: the public data that the values were computed on
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] within a logical step, and [`DpError::ChangedBuffer`] for
    /// a packed value that changed.
    pub fn accept_public_buffers<M: Module, T>(
        &mut self,
        model: &M,
        data: &PublicData<T>,
    ) -> Result<(), DpError> {
        let accepted = self.accept_public_buffers_async(model, data);
        blocking(accepted, "DpOptimizer::accept_public_buffers_async")
    }

    /// Runs [`accept_public_buffers`](Self::accept_public_buffers) without blocking the thread.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`accept_public_buffers`](Self::accept_public_buffers).
    pub async fn accept_public_buffers_async<M: Module, T>(
        &mut self,
        model: &M,
        data: &PublicData<T>,
    ) -> Result<(), DpError> {
        self.engine.accept_public_buffers(model, data.origin()).await
    }

    /// Drops everything that was accumulated since the last step. None of it was released.
    pub fn discard(&mut self) {
        self.engine.discard();
    }

    /// Adds the noise, records the release in the ledger, and updates the model.
    ///
    /// # Arguments
    ///
    /// - `lr`: learning rate, as in Burn. It reaches the model without noise, so it must not depend
    ///   on private data, such as the training loss: take it from a
    ///   [`PublicSchedule`](super::PublicSchedule)
    /// - `model`: the model that computed the losses
    /// - `draw`: the logical batch, or its draw; it is consumed
    ///
    /// # Errors
    ///
    /// [`RefusedStep`] returns the model.
    ///
    /// The model is unchanged and nothing was released after [`DpError::BudgetExhausted`], if the
    /// step would exceed the budget, after [`DpError::InvalidArgument`], if a learning rate is not
    /// finite, after [`DpError::OtherModel`], if a parameter is in another clipping group than when
    /// it was clipped, and after [`DpError::InvalidState`], if the draw does not fit or all planned
    /// steps were taken. A step that is repeated after a resumption is rejected unless it equals,
    /// bit for bit, the step that was released; see
    /// [`Checkpointer`](crate::checkpoint::Checkpointer).
    ///
    /// The model is unchanged after an error of the device or of the log of releases. Nothing was
    /// released, although the release may be in the ledger, and the noise of the step is used up;
    /// resume from the last checkpoint.
    ///
    /// If a sparsifier or a weight average cannot process the model, the release took place and is
    /// in the ledger, and the returned model includes the update.
    pub fn step<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        model: M,
        draw: impl Into<Draw>,
    ) -> Result<M, Box<RefusedStep<M>>> {
        let step = async |model| self.step_async(lr, model, draw).await;
        RefusedStep::blocking(model, step, "DpOptimizer::step_async")
    }

    /// Runs [`step`](Self::step) without blocking the thread, as browsers require.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`step`](Self::step). If the future is dropped before its end, the
    /// release may be in the log and in the ledger, and the noise of the step is used up; resume
    /// from the last checkpoint.
    pub async fn step_async<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        model: M,
        draw: impl Into<Draw>,
    ) -> Result<M, Box<RefusedStep<M>>> {
        let outcome = self.engine.step(&mut self.inner, lr.into(), model, &draw.into()).await;
        match outcome.error {
            None => Ok(outcome.model),
            Some(error) => Err(RefusedStep::new(outcome.model, error)),
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &PrivacyPlan {
        &self.engine.plan
    }

    /// Returns everything that was released so far, with all that the
    /// [statement](Self::statement) says about it.
    pub fn ledger(&self) -> PrivacyLedger {
        self.engine.described_ledger()
    }

    /// Returns the number of releases in the [ledger](Self::ledger), at less cost.
    pub fn releases(&self) -> u64 {
        self.engine.ledger.releases()
    }

    /// Returns the inner optimizer.
    pub fn inner(&self) -> &ModuleOptimizer {
        &self.inner
    }

    /// Returns the sparsifier, if there is one.
    pub fn sparsifier(&self) -> Option<&Sparsifier> {
        self.engine.sparsifier.as_ref()
    }

    /// Returns the average of the weights, if there is one.
    pub fn weight_average(&self) -> Option<&WeightAverage> {
        self.engine.average.as_ref()
    }

    /// Returns the number of the next step: the number of releases so far, unless steps are
    /// [repeated](crate::checkpoint::Checkpointer) after a resumption.
    pub fn next_step(&self) -> u64 {
        self.engine.next_step()
    }

    /// Returns whether the independence of the examples was tested.
    pub fn independence(&self) -> Independence {
        self.engine.independence.found()
    }

    /// Returns the standard deviation of the noise on each value of the last released gradient of
    /// the parameter with this path.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if no gradient was released yet, and
    /// [`DpError::UnsupportedModel`] if the parameter belongs to no clipping group.
    pub fn gradient_noise_std(&self, path: &str) -> Result<f64, DpError> {
        self.engine.gradient_noise_std(path)
    }

    /// Returns the ε of everything that was released so far. It is infinite if the noise is not
    /// secret.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if δ is 1 / dataset size or more, which would allow
    /// publishing a unit outright, and [`DpError::Accountant`] if δ is outside (0, 1).
    pub fn privacy_spent(&self, delta: f64) -> Result<Epsilon, DpError> {
        self.engine.privacy_spent(delta)
    }

    /// Returns the privacy statement of everything that was released so far.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`privacy_spent`](Self::privacy_spent), and an error if `deltas` is
    /// empty.
    pub fn statement(&self, deltas: &[f64]) -> Result<PrivacyStatement, DpError> {
        self.engine.statement(deltas)
    }

    /// Returns the counts of the last step. They are exact, so they are not private.
    pub fn statistics(&self) -> NonPrivate<ClippingStatistics> {
        NonPrivate::new(self.engine.statistics())
    }
}

impl PrivacyPlan {
    /// Starts the run with an optimizer of Burn.
    pub fn optimizer(self, inner: ModuleOptimizer) -> DpOptimizer {
        DpOptimizer { engine: PrivacyEngine::new(self), inner }
    }
}

opaque_debug!(DpOptimizer, |this| plan: this.engine.plan, next_step: this.engine.next_step());
