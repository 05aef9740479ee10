//! The subject of a measurement: a network and a batch for it.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor};
use burn_dp_examples::data::{Batch, Encoder};

use super::networks::{AnyNetwork, Network, Sizes};

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

impl Subject {
    /// Initializes the network, and returns it with a batch of synthetic digits.
    pub(super) fn init(self, batch_size: usize, device: &Device) -> (AnyNetwork, Batch<Tensor<4>>) {
        let Self { network, sizes, is_stock } = self;
        let encoder = network.encoder(sizes);
        let batch = encoder.batch(encoder.made_up(batch_size, network.classes()), device);
        let model = match is_stock {
            true => network.stock(sizes, device),
            false => network.private(sizes, device),
        };
        (model, batch)
    }
}
