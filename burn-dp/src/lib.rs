//! Differentially private training for [Burn](burn).

// Burn keeps NdArray as its second CPU backend, deprecated, and so do we.
#![cfg_attr(feature = "ndarray", allow(deprecated))]

pub mod clipping;
mod error;
pub mod grads;
pub mod losses;
pub mod nn;
pub mod noise;
mod non_private;
pub mod ops;
pub mod optim;
pub mod sampling;

#[cfg(test)]
mod test_devices;

pub use error::DpError;
pub use grads::check_independence;
pub use non_private::NonPrivate;
