use burn::module::{Module, ModuleDisplay, Param};
use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use burn_dp::nn::{IntoPrivate, Private};

use crate::data::{Inputs, PADDING, WordVectors};

/// Inputs that a network reads as a sequence of vectors.
pub trait Sequence: Module + ModuleDisplay {
    /// The inputs.
    type Inputs: Inputs;

    /// Returns the length of the vectors.
    fn width(&self) -> usize;

    /// Returns the vectors, and a mask of the padding.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, length, width]` and, for texts, `[batch_size, length]`
    fn vectors(&self, inputs: Self::Inputs) -> (Tensor<3>, Option<Tensor<2, Bool>>);

    /// Returns one vector for each example, from the states of a recurrent network.
    ///
    /// # Shapes
    ///
    /// - states: `[batch_size, length, width]`
    /// - output: `[batch_size, width]`
    fn summary(&self, states: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<2>;
}

/// The rows of an image from top to bottom; the state after the last one is the summary.
#[derive(Module, Debug)]
pub struct Rows {
    /// Number of values of a row, all channels together.
    pub width: usize,
}

impl Sequence for Rows {
    type Inputs = Tensor<4>;

    fn width(&self) -> usize {
        self.width
    }

    fn vectors(&self, images: Tensor<4>) -> (Tensor<3>, Option<Tensor<2, Bool>>) {
        (images.swap_dims(1, 2).flatten(2, 3), None)
    }

    fn summary(&self, states: Tensor<3>, _padding: Option<Tensor<2, Bool>>) -> Tensor<2> {
        let [_, length, _] = states.dims();
        states.narrow(1, length - 1, 1).squeeze_dim(1)
    }
}

/// Standard deviation of word vectors before training.
///
/// Small: averaged over many words, long random vectors would hide the learned signal.
const STD: f64 = 0.0025;

/// The vectors of the words of a text; the mean of the states is the summary.
#[derive(Module, Debug)]
pub struct Words {
    /// From the numbers of words to vectors.
    pub embedding: Private<Embedding>,
    /// Length of a vector.
    pub width: usize,
    /// Factor of the vectors.
    pub scale: f64,
}

impl Words {
    /// Creates vectors that are trained from scratch, multiplied by the square root of their
    /// length, so that one learning rate suits them and the following layers.
    ///
    /// # References
    ///
    /// A. Vaswani et al.: Attention is all you need, 2017, section 3.4.
    pub fn trained(vocabulary: usize, width: usize, device: &Device) -> Self {
        let initializer = Initializer::Normal { mean: 0.0, std: STD };
        let embedding =
            EmbeddingConfig::new(vocabulary, width).with_initializer(initializer).init(device);
        Self { embedding: embedding.private(), width, scale: (width as f64).sqrt() }
    }

    /// Creates frozen vectors from a public source. They need no noise.
    pub fn frozen(vectors: &WordVectors, device: &Device) -> Self {
        let shape = [vectors.vocabulary.len(), vectors.dimension];
        let rows = Tensor::from_data(TensorData::new(vectors.rows.clone(), shape), device);
        let embedding = Embedding { weight: Param::from_tensor(rows) }.no_grad();
        Self { embedding: embedding.private(), width: vectors.dimension, scale: 1.0 }
    }
}

impl Sequence for Words {
    type Inputs = Tensor<2, Int>;

    fn width(&self) -> usize {
        self.width
    }

    fn vectors(&self, texts: Tensor<2, Int>) -> (Tensor<3>, Option<Tensor<2, Bool>>) {
        let padding = texts.clone().equal_elem(PADDING);
        (self.embedding.forward(texts) * self.scale, Some(padding))
    }

    fn summary(&self, states: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<2> {
        mean(states, padding)
    }
}

/// Returns the mean over the positions without padding.
///
/// # Shapes
///
/// - states: `[batch_size, length, width]`
/// - padding: `[batch_size, length]`
/// - output: `[batch_size, width]`
pub(super) fn mean(states: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<2> {
    let Some(padding) = padding else { return states.mean_dim(1).squeeze_dim(1) };
    let kept = padding.bool_not().float();
    let counts = kept.clone().sum_dim(1).clamp_min(1.0);
    let sum: Tensor<2> = (states * kept.unsqueeze_dim::<3>(2)).sum_dim(1).squeeze_dim(1);
    sum / counts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rows_hold_all_channels_and_the_last_state_is_the_summary() {
        let device = Device::flex();
        let images = Tensor::<1, Int>::arange(0..2 * 3 * 4 * 5, &device).float();
        let images = images.reshape([2, 3, 4, 5]);
        let rows = Rows { width: 15 };
        let (vectors, padding) = rows.vectors(images.clone());
        assert!(vectors.dims() == [2, 4, 15] && padding.is_none());
        // Row 1 of the second image: the pixels of channel 2 are at its end.
        let found = vectors.clone().slice([1..2, 1..2, 10..15]).into_data();
        let expected = images.slice([1..2, 2..3, 1..2, 0..5]).into_data();
        assert_eq!(found.try_into_vec::<f32>().unwrap(), expected.try_into_vec::<f32>().unwrap());
        let last = vectors.clone().slice([0..2, 3..4, 0..15]).reshape([2, 15]);
        rows.summary(vectors, None).into_data().assert_eq(&last.into_data(), true);
    }

    #[test]
    fn padding_counts_for_nothing() {
        let device = Device::flex();
        let words = Words::trained(6, 2, &device);
        let texts = |values: &[i32], length| {
            Tensor::from_data(TensorData::new(values.to_vec(), [1, length]), &device)
        };
        let summary = |texts| {
            let (vectors, padding) = words.vectors(texts);
            words.summary(vectors, padding).into_data().try_into_vec::<f32>().unwrap()
        };
        let (short, long) = (summary(texts(&[3, 5], 2)), summary(texts(&[3, 5, 0, 0], 4)));
        assert!(short.iter().zip(&long).all(|(a, b)| (a - b).abs() < 1e-6), "{short:?} {long:?}");
        assert_eq!(summary(texts(&[0, 0], 2)), [0.0, 0.0]);
    }

    #[test]
    fn vectors_from_elsewhere_are_looked_up_and_not_trained() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.txt");
        std::fs::write(&path, "good 1 2\nbad 3 4\n").unwrap();
        let vectors = WordVectors::read(&path, 9).unwrap();
        let device = Device::flex().autodiff();
        let words = Words::frozen(&vectors, &device);
        let texts = TensorData::new(vec![3, 0], [1, 2]);
        let (found, _) = words.vectors(Tensor::from_data(texts, &device));
        assert_eq!(found.into_data().try_into_vec::<f32>().unwrap(), [3.0, 4.0, 0.0, 0.0]);
        assert!(!words.embedding.into_inner().weight.is_require_grad());
    }
}
