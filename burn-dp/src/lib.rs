//! Differentially private training for [Burn](burn).

mod error;
pub mod losses;
pub mod sampling;

pub use error::DpError;
