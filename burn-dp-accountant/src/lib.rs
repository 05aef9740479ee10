//! Privacy accounting for differentially private training.

mod error;
mod relation;

pub use error::AccountantError;
pub use relation::NeighboringRelation;
