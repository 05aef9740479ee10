//! Clipping policies: from the gradients of single examples to a sum of bounded sensitivity.

mod baselines;
mod clipped_sum;
mod flat;

pub use clipped_sum::{ClippedSum, ClippingStatistics};
pub use flat::FlatClipping;

use burn_dp_accountant::NeighboringRelation;

use crate::DpError;
use crate::grads::PerExampleGradients;

/// A policy that bounds what one privacy unit contributes to the sum of gradients.
pub trait Clipping: std::fmt::Debug + Send {
    /// Clips each example and adds up.
    ///
    /// # Errors
    ///
    /// Fails if the norms cannot be read from the device.
    fn clip(&self, grads: PerExampleGradients) -> Result<ClippedSum, DpError>;

    /// L2 sensitivity of the sum that [`clip`](Self::clip) returns, for neighbours under `relation`.
    fn sensitivity(&self, relation: NeighboringRelation) -> f64;

    /// What a privacy statement says of the policy.
    fn describe(&self) -> String;
}
