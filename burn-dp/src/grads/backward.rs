//! The private backward pass.

use burn::module::Module;
use burn::tensor::Tensor;

use super::collector::Collector;
use super::per_example::Rows;
use super::planner::Planner;
use super::row_scale::RowScale;
use super::{MemoryBound, PerExampleGradients};
use crate::DpError;
use crate::grads::independence::Probe;
use crate::model::TrainableParameters;
use crate::ops::recording::Recording;

/// Options of a private backward pass.
///
/// # Example
///
/// ```
/// # use burn_dp::{DpError, grads::PrivateBackward, clipping::{Clipping, FlatClipping}, nn::IntoPrivate};
/// # use burn::{nn::LinearConfig, tensor::{Device, Tensor}};
/// # fn main() -> Result<(), DpError> {
/// let device = Device::flex().autodiff();
/// let model = LinearConfig::new(4, 1).init(&device).private();
/// let losses = model.forward(Tensor::<2>::ones([8, 4], &device)).reshape([8]);
///
/// let grads = PrivateBackward::new().run(losses, &model)?;
/// let sum = FlatClipping::new(1.0)?.clip(grads)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PrivateBackward {
    memory_bound: MemoryBound,
    materialize: bool,
    group_size: usize,
    /// Whether nothing is formed before the pass is over.
    defers: bool,
}

impl Default for PrivateBackward {
    fn default() -> Self {
        Self::new()
    }
}

impl PrivateBackward {
    /// The cheapest way for every parameter within the default memory bound.
    pub fn new() -> Self {
        Self {
            memory_bound: MemoryBound::default(),
            materialize: false,
            group_size: 1,
            defers: false,
        }
    }

    /// Bounds the memory of per-example gradients beyond what the pass recorded.
    pub fn with_memory_bound(mut self, bound: MemoryBound) -> Self {
        self.memory_bound = bound;
        self
    }

    /// Keeps the per-example gradients of all parameters, whatever they cost. A baseline.
    ///
    /// The cost is memory traffic: the gradients of a batch are as large as the model times the batch size,
    /// and they are written, read for the norms and read again for the sum. Layers that see one position
    /// an example feel it most, because there a ghost norm is nearly free. At batch 128 a multi-layer
    /// perceptron of 136,000 parameters writes 66 MiB in every step. On Flex most of such a step is spent
    /// on fresh pages of memory, not on arithmetic: Burn gets the memory of every result anew, zeroed and
    /// copied to an aligned place, and gives it back to the operating system after use.
    pub fn with_materialize(mut self, materialize: bool) -> Self {
        self.materialize = materialize;
        self
    }

    /// Counts every `group_size` consecutive rows as one unit, whose gradient is the mean of theirs:
    /// the augmented copies of one example. The mean is taken before clipping, so that a unit counts
    /// once however many copies it has.
    ///
    /// # References
    ///
    /// De, Berrada, Hayes, Smith, Balle, Unlocking high-accuracy differentially private image
    /// classification through scale, 2022, section 3.2 (augmentation multiplicity).
    ///
    /// # Panics
    ///
    /// Panics if `group_size` is zero.
    pub fn with_group_size(mut self, group_size: usize) -> Self {
        assert!(group_size > 0, "group_size must be at least 1, got 0");
        self.group_size = group_size;
        self
    }

    /// Forms no gradients before the pass is over, so that every rule is asked for its weighted sum.
    #[cfg(test)]
    pub(crate) fn with_deferred(mut self, defers: bool) -> Self {
        self.defers = defers;
        self
    }

    fn planner(&self) -> Planner {
        Planner::new(self.memory_bound, self.materialize).deferred(self.defers)
    }

    /// The bound on the memory of per-example gradients.
    pub fn memory_bound(&self) -> MemoryBound {
        self.memory_bound
    }

    /// How many consecutive rows are one unit.
    pub fn group_size(&self) -> usize {
        self.group_size
    }

    /// Runs the backward pass of `losses.sum()` and records per-example information.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`, example i's loss on index i; every private layer saw the examples on
    ///   axis 0 in the same order. With a group size K: `[units · K]`, the rows of a unit together
    ///
    /// # Privacy
    ///
    /// The result depends on single examples and is consumed by a clipping policy. It is the
    /// caller's part that loss i depends on example i alone: layers and losses that mix examples are
    /// refused where they can be seen (BatchNorm in training mode, a batch axis of another length, a
    /// parameter outside of a private layer). [`DpOptimizer`](crate::optim::DpOptimizer) tests the rest
    /// on the batches of its first step, [`check_independence`](crate::check_independence) on any batch.
    ///
    /// # Errors
    ///
    /// Refuses what [`TrainableParameters::of`] refuses, losses without a graph, layers whose batch
    /// axis is not that of the losses, and parameters whose gradient is not per example.
    pub fn run<M: Module>(
        &self,
        losses: Tensor<1>,
        model: &M,
    ) -> Result<PerExampleGradients, DpError> {
        self.run_probed(losses, model, None)
    }

    /// The same, with a test of the independence of the examples on the way.
    pub(crate) fn run_probed<M: Module>(
        &self,
        losses: Tensor<1>,
        model: &M,
        probe: Option<&mut Probe>,
    ) -> Result<PerExampleGradients, DpError> {
        let parameters = TrainableParameters::of(model)?;
        let [batch_size] = losses.dims();
        if !batch_size.is_multiple_of(self.group_size) {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "{batch_size} losses are not whole groups of {}; give every unit as many copies",
                    self.group_size
                ),
            });
        }
        let witness = losses.clone().inner();
        if batch_size == 0 {
            return Ok(PerExampleGradients::empty(witness.device()));
        }
        if !losses.is_tracked() {
            return Err(DpError::NotPerExample {
                reason: "they do not depend on any trained parameter; compute them from the \
                         model's output on its autodiff device"
                    .into(),
            });
        }

        let probed = probe.and_then(|probe| probe.weigh(losses.clone(), self.group_size, model));
        let (losses, probed) = match probed {
            Some((losses, probed)) => (losses, Some(probed)),
            None => (losses, None),
        };
        let scale = match &probed {
            Some(probed) => RowScale::new(probed.inverse_factors(&witness.device())),
            None => RowScale::none(),
        };
        let rows = Rows { count: batch_size, group_size: self.group_size };
        let collector = Collector::new(witness, scale, &parameters, rows, self.planner());
        let recording = Recording::start(collector)?;
        let grads = (losses.sum() / self.group_size as f64).backward();
        let mut collector = recording.finish();
        parameters.refuse_ordinary_gradients(model, &grads)?;
        drop(grads);
        let scale = collector.take_scale()?;
        if let Some(probed) = probed {
            probed.judge(scale)?;
        }
        collector.finish()
    }
}
