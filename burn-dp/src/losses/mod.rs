//! Losses with one value for each example.
//!
//! Clipping bounds the contribution of each example, so a private gradient needs one loss for each
//! example, `[batch_size]`, instead of the mean. Most losses of Burn return the mean. These losses
//! have the names and options of Burn's losses and return the values before the mean:
//!
//! | Loss | Predictions |
//! |---|---|
//! | [`CrossEntropyLoss`] | class scores: `[batch, classes]`, sequences, maps of classes |
//! | [`BinaryCrossEntropyLoss`] | scores of one or several binary labels |
//! | [`MseLoss`], [`L1Loss`], [`HuberLoss`] | numbers of any shape |
//!
//! Axis 0 is the batch. [`ExampleReduction`] reduces the other axes to one value for each example.
//!
//! # Privacy
//!
//! The loss of an example depends on that example alone. Nothing is divided by a number of tokens,
//! a sum of class weights or a size of the batch, unlike in Burn's means: with such a divisor one
//! example changes the gradients of all others, and clipping does not bound that. Shapes that would
//! broadcast over the batch panic for the same reason.
//!
//! A loss or gradient that is not finite only affects its own example. In clipping, an example
//! whose gradient is not finite counts as zero.
//!
//! # Example
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use burn_dp::losses::CrossEntropyLossConfig;
//!
//! let device = Device::default();
//! let logits = Tensor::<2>::from_floats([[2.0, 0.0], [0.0, 0.0]], &device);
//! let targets = Tensor::<1, Int>::from_ints([0, 1], &device);
//! let losses = CrossEntropyLossConfig::new().init().forward(logits, targets);
//! assert_eq!(losses.dims(), [2]);
//! ```

mod binary_cross_entropy;
mod cross_entropy;
mod huber;
mod l1;
mod mse;
mod reduction;

#[cfg(test)]
mod oracles;
#[cfg(test)]
mod regression;

pub use binary_cross_entropy::{BinaryCrossEntropyLoss, BinaryCrossEntropyLossConfig};
pub use cross_entropy::{CrossEntropyLoss, CrossEntropyLossConfig};
pub use huber::{HuberLoss, HuberLossConfig};
pub use l1::{L1Loss, L1LossConfig};
pub use mse::{MseLoss, MseLossConfig};
pub use reduction::ExampleReduction;
