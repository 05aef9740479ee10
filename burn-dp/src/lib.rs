//! Differentially private training for [Burn](burn).

// Burn keeps NdArray as its second CPU backend, deprecated, and so do we.
#![cfg_attr(feature = "ndarray", allow(deprecated))]

pub mod clipping;
mod error;
pub mod grads;
pub mod nn;
mod non_private;
pub mod ops;

pub use error::DpError;
pub use non_private::NonPrivate;
