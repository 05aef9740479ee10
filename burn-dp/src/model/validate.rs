//! What cannot be trained privately, all faults at once.
//!
//! [`validate`] walks a model and says of every part that stands in the way where it is, why, and what
//! to do. The optimizer refuses by the same findings, so the two cannot disagree.
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
//! use burn::tensor::Device;
//! use burn_dp::nn::{IntoPrivate, Private};
//! use burn_dp::model::validate;
//!
//! #[derive(Module, Debug)]
//! struct Net {
//!     fc1: Private<Linear>,
//!     norm: BatchNorm,
//!     fc2: Linear,
//! }
//!
//! let device = Device::flex().autodiff();
//! let net = Net {
//!     fc1: LinearConfig::new(4, 8).init(&device).private(),
//!     norm: BatchNormConfig::new(8).init(&device),
//!     fc2: LinearConfig::new(8, 2).init(&device),
//! };
//! let faults = validate(&net).unwrap_err();
//! // The norm mixes the examples, and its scale and shift are trained outside of a private layer.
//! let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
//! assert_eq!(paths, ["fc2", "norm", "norm"]);
//! println!("{faults}");
//! ```

use super::{Faults, Survey};
use burn::module::Module;

/// Finds everything in `model` that cannot be trained privately as it is.
///
/// A model without faults can still be used wrongly: that a layer keeps the examples on axis 0, and that
/// loss i depends on example i alone, is seen in the backward pass only. A parameter outside of a private
/// layer is a fault here even if no loss uses it, and even if the forward pass reads it through
/// [`nn::parameter`](crate::nn::parameter) alone, which is private: the walk sees fields, not the forward
/// pass. Such a model trains; held as a `Private<Param<_>>`, with the same record, the parameter is no
/// fault.
///
/// # Errors
///
/// All faults, sorted by path.
pub fn validate<M: Module>(model: &M) -> Result<(), Faults> {
    let faults = Survey::of(model).into_faults();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}
