//! Privacy loss distributions: certified brackets of ε and δ.

mod accountant;
mod bracket;
mod compose;
mod composition;
mod contour;
mod convex;
mod delta;
mod effort;
mod heavy;
mod lattice;
mod powers;
mod profile;
mod quadrature;
mod rotation;
mod shape;
mod spectrum;
mod variation;

pub use accountant::PldAccountant;
pub(crate) use bracket::{Bracket, directions, epsilon, largest_loss};
pub(crate) use contour::{Contour, Target};
pub(crate) use delta::delta;
pub(crate) use effort::Effort;
pub(crate) use lattice::span;
pub(crate) use profile::profile;

use crate::mechanism::{Direction, Pair};

/// Losses and logarithms of their masses on a coarse grid.
pub(crate) fn points(pair: &Pair, direction: Direction, width: f64, tail: f64) -> Vec<(f64, f64)> {
    let grid = lattice::discretize(pair, direction, width, tail).pessimistic;
    let masses = grid.mass.iter().enumerate().filter(|(_, mass)| **mass > 0.0);
    let loss = |i: usize| grid.offset + (grid.first + i as i64) as f64 * width;
    masses.map(|(i, mass)| (loss(i), mass.ln())).collect()
}
