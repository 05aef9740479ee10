//! The requirements of training on a task.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use burn_dp::model::precision_of;
use burn_dp_examples::training::Evaluation;

use super::options::TrainingOptions;

/// A model with one loss for each sample, and its evaluation.
pub(super) trait Task: Send + Sync {
    /// The model.
    type Model: Module;

    /// One row of the data.
    type Sample: Clone + Send + Sync + std::fmt::Debug + 'static;

    /// Returns the loss of each sample, `[samples]`, in single precision even if the model has
    /// another one. It depends only on that sample.
    fn losses(&self, model: &Self::Model, samples: &[Self::Sample], device: &Device) -> Tensor<1>;

    /// Evaluates a model on the samples of the evaluation, without differentiation.
    fn evaluate(
        &self,
        model: &Self::Model,
        samples: &[Self::Sample],
        device: &Device,
    ) -> Evaluation;

    /// Returns made-up samples: they fill the rows of users with few rows, and test that a loss
    /// does not depend on other samples.
    fn made_up(&self, count: usize) -> Vec<Self::Sample>;
}

/// Returns inputs in the precision of the model that reads them.
pub(super) fn in_precision_of<M: Module, const D: usize>(
    model: &M,
    inputs: Tensor<D>,
) -> Tensor<D> {
    inputs.cast(precision_of(model).unwrap_or(FloatDType::F32))
}

/// Returns classes as a tensor.
pub(super) fn targets(labels: impl Iterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let labels = labels.map(|label| label as i64).collect::<Vec<_>>();
    let count = labels.len();
    Tensor::from_data(TensorData::new(labels, [count]), device)
}

/// Number of made-up samples that independence is tested on.
pub(super) const PROBED: usize = 4;

/// Largest number of samples that are evaluated together.
pub(super) const EVALUATED: usize = 32;

impl TrainingOptions {
    /// Returns the number of samples that are evaluated together, which the physical batch bounds.
    pub(super) fn evaluated(&self) -> usize {
        self.physical_batch_size.clamp(1, EVALUATED)
    }
}
