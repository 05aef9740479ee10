//! Privacy losses on a grid: discretization with certified errors, and moments of the masses.

mod convex_hull;
mod discretize;
mod masses;
mod quadrature;
mod shape;

pub(crate) use discretize::{Discretized, discretize, points, span};
pub(crate) use masses::{LOSS_ERROR, Lattice, largest_losses, ln_moment, mass_errors, spread};
#[cfg(test)]
pub(crate) use quadrature::MASS_ERROR;
