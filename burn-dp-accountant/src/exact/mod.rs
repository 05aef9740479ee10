//! The exact value by inverse Laplace transform.

mod accountant;
mod closed;
mod contour;
mod inversion;
mod rare;

pub use accountant::ExactAccountant;
pub(crate) use closed::{gaussian_delta, gaussian_epsilon};
pub(crate) use inversion::Patience;
