//! The size that is increased.

use clap::ValueEnum;

use crate::bench::networks::{Network, Sizes};

/// A size that is changed while the others stay constant.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Examples in a step, of the CNN.
    Batch,
    /// Width of both hidden layers of the MLP, batch 64.
    Width,
    /// Number of blocks of `transformer-block`, batch 8.
    Depth,
    /// Positions of `transformer-block`, batch 8.
    Sequence,
    /// Pixels per side of the images of `resnet18-cifar` with 16 channels, batch 8.
    Image,
}

impl Axis {
    /// Returns the values that are measured by default.
    pub(super) fn values(self) -> &'static [usize] {
        match self {
            Self::Batch => &[16, 32, 64, 128, 256],
            Self::Width => &[128, 256, 512, 1024, 2048],
            Self::Depth => &[1, 2, 4, 8],
            Self::Sequence => &[16, 32, 64, 128, 256],
            Self::Image => &[16, 32, 64, 128],
        }
    }

    /// Returns the network, its sizes and the batch size for a value.
    pub(super) fn subject(self, value: usize) -> (Network, Sizes, usize) {
        let (size, sizes) = (Some(value), Sizes::default());
        match self {
            Self::Batch => (Network::Cnn, sizes, value),
            Self::Width => (Network::Mlp, Sizes { width: size, ..sizes }, 64),
            Self::Depth => (Network::TransformerBlock, Sizes { depth: size, ..sizes }, 8),
            Self::Sequence => (Network::TransformerBlock, Sizes { length: size, ..sizes }, 8),
            Self::Image => {
                let sizes = Sizes { image_size: size, width: Some(16), ..sizes };
                (Network::ResNet18Cifar, sizes, 8)
            }
        }
    }
}
