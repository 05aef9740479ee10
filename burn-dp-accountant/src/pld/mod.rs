//! Privacy loss distributions: certified brackets of ε and δ.

mod accountant;
mod bracket;
mod compose;
mod contour;
mod convex;
mod lattice;
mod powers;
mod rotation;
mod shape;
mod spectrum;

pub use accountant::PldAccountant;
pub(crate) use bracket::{Bracket, Effort, delta, directions, epsilon, largest_loss, profile};
pub(crate) use contour::{Contour, Target};
pub(crate) use lattice::span;

use crate::mechanism::{Direction, Pair};

/// Losses and logarithms of their masses on a coarse grid.
pub(crate) fn points(pair: &Pair, direction: Direction, width: f64, tail: f64) -> Vec<(f64, f64)> {
    let grid = lattice::discretize(pair, direction, width, tail).pessimistic;
    let masses = grid.mass.iter().enumerate().filter(|(_, mass)| **mass > 0.0);
    let loss = |i: usize| grid.offset + (grid.first + i as i64) as f64 * width;
    masses.map(|(i, mass)| (loss(i), mass.ln())).collect()
}
