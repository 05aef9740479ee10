//! The exact value by inverse Laplace transform.

mod accountant;
mod inversion;

pub use accountant::ExactAccountant;
pub(crate) use inversion::{gaussian_delta, gaussian_epsilon};
