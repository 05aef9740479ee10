//! Losses with one value for each example.
//!
//! A private gradient clips what each example contributes, so it starts from one loss for each
//! example, `[batch_size]`, not from their mean. Most losses of Burn return the mean. Those here
//! have the names and options of Burn's and return the values that the mean is taken of:
//!
//! | Loss | Examples |
//! |---|---|
//! | [`CrossEntropyLoss`] | class scores: `[batch, classes]`, sequences, images of classes |
//! | [`BinaryCrossEntropyLoss`] | yes-or-no scores, one or several for each example |
//! | [`MseLoss`], [`L1Loss`], [`HuberLoss`] | numbers, in any shape |
//!
//! Axis 0 is the batch. What an example has along other axes is reduced to one value by
//! [`ExampleReduction`].
//!
//! # Privacy
//!
//! The value of an example depends on that example alone. In particular nothing is divided by a
//! number of tokens, a sum of class weights, or a size that is taken over the batch, as Burn's
//! means are: such a divisor would let one example change the gradients of all others, and clipping
//! would not bound that. Shapes that would be broadcast over the batch are refused for the same
//! reason.
//!
//! A value or gradient that is not finite is confined to its example, and an example whose gradient
//! is not finite counts as zero when it is clipped.
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
