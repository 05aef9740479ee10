//! The forward and backward passes of a whole logical batch.

use burn::module::Module;
use burn::tensor::Tensor;

use super::{DpOptimizer, LossFunction};
use crate::DpError;
use crate::device_read::blocking;
use crate::sampling::LogicalBatch;

impl DpOptimizer {
    /// Computes the losses of a logical batch, clips its examples, and adds them up. Every physical
    /// batch is processed once.
    ///
    /// Prefer it to [`backward`](Self::backward). Since it loads the units itself, the independence
    /// of the examples is also tested [by value](super::IndependenceCheck), on one physical batch,
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
    ///   of at most `physical_batch_size`
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
        self.clip_batch(model, batch, physical_batch_size, losses, function)
    }

    async fn clip_batch<M: Module, O: Send + 'static>(
        &mut self,
        model: &M,
        batch: &LogicalBatch<O>,
        physical_batch_size: usize,
        losses: impl Fn(&M, O) -> Tensor<1>,
        function: LossFunction,
    ) -> Result<(), DpError> {
        // Before any forward pass, so that no pass of the test sets the values that later passes
        // are compared with.
        self.engine.buffers.begin(model).await?;
        let computing = self.engine.computing(model)?;
        let losses = |model: &M, input| (losses(model, input), ());
        let forward = self.engine.forward(batch, None, &losses, function);
        let expected = self.engine.plan.expected_batch_size;
        for physical in batch.computed(physical_batch_size, (0, 1), None, expected)? {
            let (input, part) = physical?.into_parts();
            self.engine.check_part(&part)?;
            if self.engine.begin_comparison(function) {
                let outcome = forward.compare(&*computing, part.private_indices()).await;
                self.engine.compared(function, &outcome);
                outcome?;
            }
            let task = self.engine.clip_task(model).await?;
            let (losses, ()) = forward.run(&*computing, input, &part);
            let (sum, probe) = task.run(losses, &part, model, &computing).await;
            self.engine.end_task(probe);
            self.engine.accumulate(part, sum?)?;
        }
        Ok(())
    }
}
