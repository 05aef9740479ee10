//! Loss and accuracy on the test set.

use burn::tensor::{Device, Int, Tensor};
use burn_dp::losses::CrossEntropyLossConfig;
use serde::Serialize;

use crate::data::{Encoder, ItemDataset};
use crate::models::Classifier;

/// Loss and accuracy of a model on a test set, which is treated as public.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean cross entropy of an example, or of a token.
    pub loss: f64,
    /// Share of the examples, or of the tokens, whose class has the highest score.
    pub accuracy: f64,
}

/// Number of examples that are evaluated together.
const BATCH_SIZE: usize = 250;

impl Evaluation {
    /// Evaluates a model on the device of its parameters, without differentiation.
    pub fn of<E: Encoder, M: Classifier<Inputs = E::Inputs>>(
        model: &M,
        encoder: &E,
        test: &ItemDataset<E::Item>,
        device: &Device,
    ) -> Self {
        let model = model.valid();
        let cross_entropy = CrossEntropyLossConfig::new().init();
        let mut total = Self::default();
        for items in test.items().chunks(BATCH_SIZE) {
            let batch = encoder.batch(items.to_vec(), device);
            let scores = model.forward(batch.inputs);
            let losses = cross_entropy.forward(scores.clone(), batch.targets.clone());
            total.count(losses, scores, batch.targets);
        }
        total.over(test.items().len())
    }

    /// Adds the losses and the correct predictions of a batch.
    pub fn count(&mut self, losses: Tensor<1>, scores: Tensor<2>, targets: Tensor<1, Int>) {
        let right = scores.argmax(1).flatten::<1>(0, 1).equal(targets);
        self.accuracy += right.int().sum().into_scalar::<i64>() as f64;
        self.loss += losses.sum().into_scalar::<f64>();
    }

    /// Divides the sums by a number of examples, of which 0 counts as 1.
    pub fn over(self, examples: usize) -> Self {
        let examples = examples.max(1) as f64;
        Self { loss: self.loss / examples, accuracy: self.accuracy / examples }
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::*;
    use crate::data::{ImageBatcher, ImageItem, PIXELS};

    /// Scores class 3 highest, by a margin of 2, for every image.
    #[derive(Module, Debug)]
    struct AlwaysThree;

    impl Classifier for AlwaysThree {
        type Inputs = Tensor<4>;

        fn forward(&self, images: Tensor<4>) -> Tensor<2> {
            let device = images.device();
            let mut scores = [0.0; 10];
            scores[3] = 2.0;
            Tensor::<2>::from_floats([scores], &device).repeat_dim(0, images.dims()[0])
        }
    }

    #[test]
    fn loss_and_accuracy_are_means_also_with_a_short_last_batch() {
        let label = |index| if index < 100 { 3 } else { 4 };
        let items = (0..BATCH_SIZE + 150)
            .map(|index| ImageItem { image: [0; PIXELS].into(), label: label(index) });
        let test = ItemDataset::new(items.collect());
        let encoder = ImageBatcher::MNIST;
        let evaluation = Evaluation::of(&AlwaysThree, &encoder, &test, &Device::flex());
        assert_eq!(evaluation.accuracy, 0.25);
        let normalizer = (2.0_f64.exp() + 9.0).ln();
        let expected = 0.25 * (normalizer - 2.0) + 0.75 * normalizer;
        assert!((evaluation.loss - expected).abs() < 1e-5, "{}", evaluation.loss);
    }
}
