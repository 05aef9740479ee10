//! Converts the items of a data set to tensors.

use std::fmt::Debug;
use std::hash::Hash;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};

/// Inputs and labels of a batch.
#[derive(Debug, Clone)]
pub struct Batch<I> {
    /// The input of the network.
    pub inputs: I,
    /// Classes, `[batch_size]`.
    pub targets: Tensor<1, Int>,
}

impl<I: Inputs> Batch<I> {
    /// Returns the batch of one example.
    pub fn one(&self, index: usize) -> Self {
        self.rows(index, 1)
    }

    /// Returns the batch of the first examples.
    pub fn first(&self, examples: usize) -> Self {
        self.rows(0, examples)
    }

    /// Returns batches of at most `examples` examples each, in order.
    ///
    /// # Panics
    ///
    /// Panics if `examples` is zero.
    pub fn parts(&self, examples: usize) -> impl Iterator<Item = Self> {
        let [count] = self.targets.dims();
        let starts = (0..count).step_by(examples);
        starts.map(move |start| self.rows(start, examples.min(count - start)))
    }

    fn rows(&self, start: usize, examples: usize) -> Self {
        Self {
            inputs: self.inputs.rows(start, examples),
            targets: self.targets.clone().narrow(0, start, examples),
        }
    }
}

/// Tensors that a network reads, with one row for each example.
pub trait Inputs: Clone + Debug + Send + 'static {
    /// Returns the rows of some examples.
    fn rows(&self, start: usize, examples: usize) -> Self;

    /// Returns the inputs in this precision; numbers of words have none.
    fn in_precision(self, precision: FloatDType) -> Self;
}

/// Images, `[batch_size, channels, height, width]`.
impl Inputs for Tensor<4> {
    fn rows(&self, start: usize, examples: usize) -> Self {
        self.clone().narrow(0, start, examples)
    }

    fn in_precision(self, precision: FloatDType) -> Self {
        self.cast(precision)
    }
}

/// Texts as numbers of words, `[batch_size, length]`.
impl Inputs for Tensor<2, Int> {
    fn rows(&self, start: usize, examples: usize) -> Self {
        self.clone().narrow(0, start, examples)
    }

    fn in_precision(self, _precision: FloatDType) -> Self {
        self
    }
}

/// Conversion of the items of a data set into the inputs of a network.
pub trait Encoder: Batcher<Self::Item, Batch<Self::Inputs>> + Clone + Debug + 'static {
    /// One labeled example.
    type Item: Clone + Debug + Hash + Send + Sync + 'static;
    /// The input of a network.
    type Inputs: Inputs;

    /// Returns made-up items that differ from each other. They are public, for tests of networks.
    fn made_up(&self, items: usize, classes: usize) -> Vec<Self::Item>;
}

/// Returns the labels of a batch as a tensor.
pub(super) fn targets(labels: impl Iterator<Item = u16>, device: &Device) -> Tensor<1, Int> {
    let labels: Vec<_> = labels.map(i32::from).collect();
    let shape = [labels.len()];
    Tensor::from_data(TensorData::new(labels, shape), device)
}
