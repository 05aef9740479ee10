//! The subject of a measurement: a network and a batch for it.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor};

use burn_dp_examples::data::{Batch, Encoder};
use burn_dp_examples::models::{Classifier, NetworkVisitor};

use super::networks::{Network, Sizes};

/// A network and its sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    /// The network.
    pub(super) network: Network,
    /// The sizes.
    pub(super) sizes: Sizes,
    /// Whether the layers are stock layers of Burn.
    pub(super) is_stock: bool,
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
        let Self { network, sizes, is_stock } = self;
        let encoder = network.encoder(sizes);
        let batch = encoder.batch(encoder.made_up(batch_size, network.classes()), device);
        let visitor = WithBatch { batch, measure };
        if is_stock {
            network.stock(sizes, device, visitor)
        } else {
            network.private(sizes, device, visitor)
        }
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
