//! The requirements of training on a task.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Int, Tensor};
use burn_dp::model::precision_of;
use serde::Serialize;

/// A model with one loss for each sample, and its evaluation.
pub(super) trait Task: Send + Sync {
    /// The model.
    type Model: Module;

    /// One row of the data.
    type Sample: Clone + Send + Sync + std::fmt::Debug + 'static;

    /// Returns the loss of each sample, `[samples]`, in single precision even if the model has
    /// another one. It depends only on that sample.
    fn losses(&self, model: &Self::Model, samples: &[Self::Sample], device: &Device) -> Tensor<1>;

    /// Evaluates a model on public samples, without differentiation.
    fn evaluate(
        &self,
        model: &Self::Model,
        samples: &[Self::Sample],
        device: &Device,
    ) -> Evaluation;

    /// Returns made-up samples: they fill the rows of users with few rows, and test that a loss
    /// does not depend on other samples.
    fn made_up(&self, count: usize) -> Vec<Self::Sample>;

    /// Returns the number of tokens of a sample.
    fn tokens(sample: &Self::Sample) -> usize;
}

/// Results on public samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean loss, of a row or of a token.
    pub loss: f64,
    /// Share of the rows or of the tokens that are predicted correctly.
    pub accuracy: f64,
}

impl Evaluation {
    /// Adds losses and correct predictions.
    pub(super) fn count(&mut self, losses: Tensor<1>, scores: Tensor<2>, targets: Tensor<1, Int>) {
        let right = scores.argmax(1).flatten::<1>(0, 1).equal(targets);
        self.accuracy += right.int().sum().into_scalar::<i64>() as f64;
        self.loss += losses.sum().into_scalar::<f64>();
    }

    /// Divides the counts by the number of rows.
    pub(super) fn over(self, rows: usize) -> Self {
        let rows = rows.max(1) as f64;
        Self { loss: self.loss / rows, accuracy: self.accuracy / rows }
    }
}

/// Returns inputs in the precision of the model that reads them.
pub(super) fn in_precision_of<M: Module, const D: usize>(
    model: &M,
    inputs: Tensor<D>,
) -> Tensor<D> {
    inputs.cast(precision_of(model).unwrap_or(FloatDType::F32))
}

/// Number of samples that are evaluated together.
pub(super) const EVALUATED: usize = 32;
