//! Training of the head of a classifier on features that are computed once.

use std::marker::PhantomData;

use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp_examples::training::Evaluation;

use super::split::Split;
use super::task::{Task, in_precision_of, targets};
use crate::ClassifierHead;

/// The features of a sample and its class.
#[derive(Debug, Clone)]
pub(super) struct Features {
    values: Vec<f32>,
    label: usize,
}

impl Features {
    /// Creates the features of a sample of this class.
    ///
    /// # Shapes
    ///
    /// - features: `[1, width]`: computed alone, so that no other sample can change them
    pub(super) fn new(features: Tensor<2>, label: usize) -> Self {
        Self { values: features.into_data().iter::<f32>().collect(), label }
    }
}

/// Returns the features of all samples.
pub(super) fn computed<S>(split: Split<S>, features: impl Fn(&S) -> Features) -> Split<Features> {
    split.map(|samples| samples.iter().map(&features).collect())
}

/// Training of the head on features.
pub(super) struct Probe<H> {
    loss: CrossEntropyLoss,
    width: usize,
    head: PhantomData<fn() -> H>,
}

impl<H> Probe<H> {
    /// Creates the training on these features.
    pub(super) fn new(split: &Split<Features>) -> Self {
        let width = split.test.first().map_or(0, |sample| sample.values.len());
        Self { loss: CrossEntropyLossConfig::new().init(), width, head: PhantomData }
    }

    fn inputs(&self, samples: &[Features], device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        let values = samples.iter().flat_map(|sample| sample.values.iter().copied());
        let shape = [samples.len(), self.width];
        let values = TensorData::new(values.collect::<Vec<_>>(), shape);
        let labels = samples.iter().map(|sample| sample.label);
        (Tensor::from_data(values, device), targets(labels, device))
    }
}

impl<H: ClassifierHead> Task for Probe<H> {
    type Model = H;
    type Sample = Features;

    fn losses(&self, head: &H, samples: &[Features], device: &Device) -> Tensor<1> {
        let (features, targets) = self.inputs(samples, device);
        let scores = head.scores(in_precision_of(head, features));
        self.loss.forward(scores.cast(FloatDType::F32), targets)
    }

    fn evaluate(&self, head: &H, samples: &[Features], device: &Device) -> Evaluation {
        let head = head.valid();
        let (features, targets) = self.inputs(samples, device);
        let scores = head.scores(features);
        let mut total = Evaluation::default();
        total.count(self.loss.forward(scores.clone(), targets.clone()), scores, targets);
        total.over(samples.len())
    }

    fn made_up(&self, count: usize) -> Vec<Features> {
        let sample = |row: usize| Features {
            values: (0..self.width).map(|i| ((i + row) as f32).sin()).collect(),
            label: row % 2,
        };
        (0..count).map(sample).collect()
    }
}
