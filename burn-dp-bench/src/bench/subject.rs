//! The subject of a measurement: a network and a batch for it.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor};

use burn_dp_examples::data::{Batch, CLASSES, Encoder, ImageBatcher};
use burn_dp_examples::models::{Classifier, ImageNetwork, ModelName, NetworkVisitor, NormName};

/// A network and the size of its images.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    /// The network.
    pub(super) model: ModelName,
    /// Pixels per side, for the networks that take any size.
    pub(super) image_size: usize,
}

/// An action on the network and the batch.
pub(super) trait Measure {
    type Output;

    fn measure<M: Classifier>(self, model: M, batch: Batch<M::Inputs>) -> Self::Output;
}

impl Subject {
    /// Creates the network and a batch of drawn digits, and measures them.
    pub(super) fn measure<T: Measure>(
        self,
        batch_size: usize,
        device: &Device,
        measure: T,
    ) -> T::Output {
        use ModelName::{Cnn, Lstm, Mlp, Rnn, Transformer};
        let encoder = match self.model {
            Mlp | Cnn | Rnn | Lstm | Transformer => ImageBatcher::MNIST,
            _ => ImageBatcher::photographs(self.image_size),
        };
        let network = ImageNetwork {
            name: self.model,
            shape: encoder.shape,
            classes: CLASSES,
            norm: NormName::Group,
        };
        let batch = encoder.batch(encoder.made_up(batch_size, CLASSES), device);
        network.visit(device, WithBatch { batch, measure })
    }
}

struct WithBatch<T> {
    batch: Batch<Tensor<4>>,
    measure: T,
}

impl<T: Measure> NetworkVisitor<Tensor<4>> for WithBatch<T> {
    type Output = T::Output;

    fn visit<M: Classifier<Inputs = Tensor<4>>>(self, model: M) -> T::Output {
        self.measure.measure(model, self.batch)
    }
}
