//! The exact value by inverse Laplace transform.

mod accountant;
mod inversion;

pub use accountant::ExactAccountant;
pub(crate) use inversion::{Exact, delta_of_direction, epsilon_of_direction, gaussian_delta, gaussian_epsilon};
