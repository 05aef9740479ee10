//! Differentially private training for [Burn](burn).

mod error;
pub mod sampling;

pub use error::DpError;
