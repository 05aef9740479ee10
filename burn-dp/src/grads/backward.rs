//! The private backward pass.

use burn::module::Module;
use burn::tensor::Tensor;

use super::collector::Collector;
use super::pass_check::PassCheck;
use super::planner::{Formation, Planner};
use super::rows::Rows;
use super::{DeviceCosts, MemoryBound, PerExampleGradients};
use crate::DpError;
use crate::device_read::blocking;
use crate::model::TrainableParameters;
use crate::ops::has_kernels;
use crate::ops::recording::Recording;

/// Options of a private backward pass.
///
/// # Example
///
/// ```
/// # use burn_dp::clipping::{Clipping, FlatClipping};
/// # use burn_dp::{DpError, grads::PrivateBackward, nn::IntoPrivate};
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
    formation: Formation,
    costs: DeviceCosts,
    group_size: usize,
}

impl Default for PrivateBackward {
    fn default() -> Self {
        Self::new()
    }
}

impl PrivateBackward {
    /// Creates a pass that computes every parameter in the cheapest way within the default memory
    /// bound.
    pub fn new() -> Self {
        Self {
            memory_bound: MemoryBound::default(),
            formation: Formation::Planned,
            costs: DeviceCosts::default(),
            group_size: 1,
        }
    }

    /// Bounds the memory of per-example gradients beyond the records of the pass.
    pub fn with_memory_bound(mut self, bound: MemoryBound) -> Self {
        self.memory_bound = bound;
        self
    }

    /// Sets the costs that determine the cheapest way.
    pub fn with_device_costs(mut self, costs: DeviceCosts) -> Self {
        self.costs = costs;
        self
    }

    /// Instantiates and keeps the per-example gradients of all parameters, regardless of the cost.
    /// This is a baseline.
    ///
    /// The cost is memory traffic: the gradients of a batch are as large as the model times the
    /// batch size. They are written, read for the norms, and read again for the sum. The overhead
    /// is largest for layers with one position per example, because their ghost norms are nearly
    /// free. At batch size 128 a multi-layer perceptron with 136,000 parameters writes 66 MiB in
    /// every step. On Flex, most of the time of this step is spent on fresh pages of memory, not on
    /// arithmetic: Burn allocates memory for every result, zeroed and copied to an aligned address,
    /// and returns the memory to the operating system after use.
    pub fn with_materialized_gradients(mut self) -> Self {
        self.formation = Formation::Always;
        self
    }

    /// Treats every `group_size` consecutive rows as one unit, for example the augmented copies of
    /// one example. The gradient of the unit is the mean of the gradients of its rows. The mean is
    /// taken before clipping, so that a unit counts once, regardless of its number of copies.
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

    /// Instantiates no gradients before the end of the pass, so that every rule computes its
    /// weighted sum.
    #[cfg(test)]
    pub(crate) fn deferred(mut self) -> Self {
        self.formation = Formation::Deferred;
        self
    }

    /// Returns the bound on the memory of per-example gradients.
    pub fn memory_bound(&self) -> MemoryBound {
        self.memory_bound
    }

    /// Returns the costs that determine the cheapest way.
    pub fn device_costs(&self) -> DeviceCosts {
        self.costs
    }

    /// Returns the number of consecutive rows that are one unit.
    pub fn group_size(&self) -> usize {
        self.group_size
    }

    /// Runs the backward pass of `losses.sum()` and records per-example information.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`, the loss of example i at index i; the examples are on axis 0 of
    ///   the input of every private layer, in the same order. With a group size K: `[units · K]`,
    ///   the rows of a unit next to each other
    ///
    /// # Privacy
    ///
    /// The result depends on single examples; only a clipping policy can consume it. The caller has
    /// to make sure that loss i depends on example i alone. Layers and losses that mix examples are
    /// rejected where this can be detected: BatchNorm in training mode, a batch axis of another
    /// length, a parameter outside a private layer, or a random layer whose values belong to no
    /// unit. [`DpOptimizer::backward_batch`](crate::optim::DpOptimizer::backward_batch) tests the
    /// rest on the batches of its first step, and [`check_independence`](crate::check_independence)
    /// on any items.
    ///
    /// # Errors
    ///
    /// Returns an error of [`TrainableParameters::of`] if the model cannot be trained privately,
    /// [`DpError::UnsupportedModel`] if a trained parameter is outside a private layer or a private
    /// layer is outside the model, and [`DpError::NotPerExample`] if the losses have no graph, are
    /// not whole groups, or differ in number from the rows of a private layer.
    pub fn run<M: Module>(
        &self,
        losses: Tensor<1>,
        model: &M,
    ) -> Result<PerExampleGradients, DpError> {
        // Without a check nothing is read, so this does not wait.
        blocking(self.run_checked(losses, model, &mut ()), "DpOptimizer::backward_async")
    }

    /// Runs the backward pass under a check.
    pub(crate) async fn run_checked<M: Module, C: PassCheck>(
        &self,
        losses: Tensor<1>,
        model: &M,
        check: &mut C,
    ) -> Result<PerExampleGradients, DpError> {
        let parameters = TrainableParameters::of(model)?;
        let [batch_size] = losses.dims();
        if !batch_size.is_multiple_of(self.group_size) {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "{batch_size} losses are not whole groups of {}; give every unit as many \
                     copies",
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
                reason: "the losses do not depend on any trained parameter; compute them from the \
                         model's output on its autodiff device"
                    .into(),
            });
        }

        let rows = Rows { count: batch_size, group_size: self.group_size };
        let mut planner = Planner::new(self.memory_bound, self.formation, self.costs);
        if has_kernels(&witness.device()) {
            planner = planner.for_kernels();
        }
        let collector = Collector::new(witness, &parameters, rows, planner);
        let (losses, recorder) = check.begin(losses, self.group_size, model, collector);
        let recording = Recording::start(recorder)?;
        // Of the sum, which need not be computed: a backward pass begins with ones.
        let losses = match self.group_size {
            1 => losses,
            rows => losses / rows as f64,
        };
        let grads = losses.backward();
        let recorder = recording.finish();
        parameters.refuse_ordinary_gradients(model, &grads)?;
        drop(grads);
        Ok(check.end(recorder?).await?.finish())
    }
}
