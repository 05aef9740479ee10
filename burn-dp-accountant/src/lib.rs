//! Privacy accounting for differentially private training.

mod error;

pub use error::AccountantError;
