//! The sizes of the networks.

use clap::{Args, ValueEnum};

/// The inputs of a small network.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputName {
    /// Gray images of 28 × 28 pixels, as in MNIST.
    Mnist,
    /// Color images of 32 × 32 pixels, as in CIFAR-10.
    Cifar10,
    /// 64 embeddings of width 200, as of words of a review in IMDB, for recurrent networks.
    Imdb,
}

/// Sizes of a network and its inputs. A network ignores the sizes that it does not have.
#[derive(Args, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Pixels per side of the images of the residual and VGG networks [default: 32].
    #[arg(long)]
    pub image_size: Option<usize>,
    /// Inputs of the MLP, the CNN, the recurrent networks and the small transformer [default:
    /// mnist].
    #[arg(long, value_enum)]
    pub inputs: Option<InputName>,
    /// Units of the MLP and of recurrent layers, width of a transformer block, channels of the
    /// first stage of `resnet18-cifar`.
    #[arg(long)]
    pub width: Option<usize>,
    /// Hidden layers of the MLP, number of transformer blocks.
    #[arg(long)]
    pub depth: Option<usize>,
    /// Positions of a transformer block.
    #[arg(long)]
    pub length: Option<usize>,
    /// Batch normalization with frozen statistics in the residual networks, instead of group
    /// normalization, and in the VGG networks.
    #[arg(long)]
    pub frozen_batch_norm: bool,
}
