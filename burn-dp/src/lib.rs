//! Differentially private training for [Burn](burn).

mod error;

pub use error::DpError;
