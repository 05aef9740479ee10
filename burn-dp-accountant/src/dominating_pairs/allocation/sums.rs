//! Sums of independent log-normal variables of mean 1, from above and from below in convex order.

use crate::math::normal::{self, LN_DENSITY_AT_ZERO};
use crate::math::quadrature::GAUSS_5;
use crate::math::side::Side;

/// Step of a grid relative to the distance from the mean.
const STEP: f64 = 0.01;

/// Maximum extent of one part of the quadrature: the error of five nodes is below 3e-14 of each
/// density (the derivation is in `lattice/quadrature.rs`).
const EXTENT: f64 = 0.15;

/// Atoms of less expectation than this are dropped; their total is kept.
const NEGLIGIBLE: f64 = 1e-45;

/// The distribution of a sum.
#[derive(Debug, Clone)]
pub(super) struct SumDistribution {
    /// From which side it bounds the true distribution in convex order.
    side: Side,
    /// Positions, ascending, not negative.
    positions: Vec<f64>,
    masses: Vec<f64>,
    /// Bound of the expectation and of the mass that were dropped, over the whole sum.
    lost: f64,
}

/// Maximum number of points in a grid. A coarser grid results in a larger bound.
const MOST_POINTS: usize = 1 << 20;

/// The rule for the grids of one sum.
#[derive(Debug, Clone, Copy)]
struct GridRule {
    /// Number of terms of the whole sum.
    terms: u64,
    /// Standard deviation of one term without rare values.
    scale: f64,
    /// Largest value of one term.
    largest: f64,
}

impl GridRule {
    /// Returns ascending points from 0 to the largest sum of `terms` variables.
    fn points(&self, terms: u64) -> Vec<f64> {
        let mean = terms as f64;
        let scale = self.scale * mean.sqrt();
        let top = mean * self.largest;
        // Small values are large losses when the unit is added.
        let step = |position: f64| STEP * scale.hypot(position - mean).min(2.0 * position);
        let mut points = vec![0.0];
        let mut position = (mean - 14.0 * scale).max(1e-7 * mean);
        while position < top && points.len() < MOST_POINTS {
            points.push(position);
            let next = position + step(position);
            if next <= position {
                // The steps are below rounding: one wide cell holds the rest.
                break;
            }
            position = next;
        }
        points.push(top);
        points
    }
}

impl SumDistribution {
    /// Returns the sum of `terms` variables `e^{μx - μ²/2}`, cut at `x = μ + reach`.
    pub(super) fn of(side: Side, terms: u64, shift: f64, reach: f64) -> Self {
        let end = shift + reach;
        // Values that are exceeded in a tenth of all sums are not rare.
        let frequent = -normal::quantile(0.1 / (terms as f64 + 1.0));
        let second = (shift * shift).exp() * normal::cdf(frequent - 2.0 * shift)
            - 2.0 * normal::cdf(frequent - shift)
            + normal::cdf(frequent);
        let scale = second.max(1e-3 * shift * shift).min(1e12).sqrt();
        let beyond = normal::cdf(-reach) / normal::cdf(-end);
        let largest = match side {
            Side::Upper => value(shift, end),
            Side::Lower => beyond,
        };
        let grid = GridRule { terms, scale, largest: largest * (1.0 + 1e-12) };
        let one = Self::one(side, &grid, shift, end, beyond);
        let mut power = one.clone();
        let mut done = 1u64;
        for bit in (0..terms.ilog2()).rev() {
            done *= 2;
            power = power.plus(&power, &grid, done);
            if terms >> bit & 1 == 1 {
                done += 1;
                power = power.plus(&one, &grid, done);
            }
        }
        power
    }

    /// Returns a distribution without mass: a lower bound of everything.
    pub(super) fn nothing(side: Side) -> Self {
        Self { side, positions: Vec::new(), masses: Vec::new(), lost: 0.0 }
    }

    /// Returns positions and masses.
    pub(super) fn atoms(&self) -> impl Iterator<Item = (f64, f64)> {
        self.positions.iter().copied().zip(self.masses.iter().copied())
    }

    /// Returns a bound on the dropped part, as a share of the expectation and as a mass.
    pub(super) fn lost(&self) -> f64 {
        self.lost
    }

    /// Returns the distribution of one term.
    fn one(side: Side, grid: &GridRule, shift: f64, end: f64, beyond: f64) -> Self {
        let points = grid.points(1);
        let outcome = |position: f64| position.ln() / shift + 0.5 * shift;
        let mut cells = vec![(0.0, 0.0); points.len()];
        // From 0 to the first point.
        let first = outcome(points[1]);
        cells[0] = (normal::cdf(first), normal::cdf(first - shift));
        let mut left = first;
        for (c, cell) in cells.iter_mut().enumerate().skip(1) {
            let right = points.get(c + 1).map_or(end, |p| outcome(*p).min(end));
            if right > left {
                *cell = integral(shift, left, right, points[c]);
                left = right;
            }
        }
        let rare = normal::cdf(-end);
        match side {
            Side::Upper => cells[0].0 += rare,
            Side::Lower => {
                let last = cells.len() - 1;
                let cell = points.partition_point(|p| *p <= beyond).clamp(1, last + 1) - 1;
                cells[cell].0 += rare;
                cells[cell].1 += rare * (beyond - points[cell]).max(0.0);
            }
        }
        let mut one = Self::nothing(side);
        one.fill(grid, 1, &points, &cells);
        one
    }

    /// Returns the sum with an independent variable, on the grid of `terms` terms.
    fn plus(&self, other: &Self, grid: &GridRule, terms: u64) -> Self {
        let same = std::ptr::eq(self, other);
        let points = grid.points(terms);
        let last = points.len() - 1;
        let mut cells = vec![(0.0, 0.0); points.len()];
        let mut first = 0;
        for (i, (&a, &p)) in self.positions.iter().zip(&self.masses).enumerate() {
            let start = if same { i } else { 0 };
            let factor = if same { 2.0 * p } else { p };
            let mut cell = first;
            let (mut mass, mut distance) = (0.0, 0.0);
            let others = other.positions[start..].iter().zip(&other.masses[start..]);
            for (j, (&b, &q)) in others.enumerate() {
                let sum = a + b;
                if cell < last && sum >= points[cell + 1] {
                    cells[cell].0 += mass;
                    cells[cell].1 += distance;
                    (mass, distance) = (0.0, 0.0);
                    while cell < last && sum >= points[cell + 1] {
                        cell += 1;
                    }
                }
                if j == 0 {
                    first = cell;
                }
                let product = if same && j == 0 { p * q } else { factor * q };
                mass += product;
                distance += product * (sum - points[cell]).max(0.0);
            }
            cells[cell].0 += mass;
            cells[cell].1 += distance;
        }
        let mut sum = Self::nothing(self.side);
        // The loss of each term is already counted for all terms.
        sum.lost = self.lost.max(other.lost);
        sum.fill(grid, terms, &points, &cells);
        sum
    }

    /// Fills the atoms from the mass of each cell and its mean distance from the lower end, times
    /// the mass: split between the ends of the cell, or merged at the mean.
    fn fill(&mut self, grid: &GridRule, terms: u64, points: &[f64], cells: &[(f64, f64)]) {
        let mut carried = 0.0;
        for (c, &(mass, distance)) in cells.iter().enumerate() {
            let (position, mass) = match (self.side, points.get(c + 1)) {
                (Side::Upper, Some(next)) => {
                    let up = (distance / (next - points[c])).min(mass);
                    let here = carried + (mass - up);
                    carried = up;
                    (points[c], here)
                }
                (Side::Upper, None) => (points[c], carried + mass),
                (Side::Lower, _) if mass > 0.0 => (points[c] + distance / mass, mass),
                (Side::Lower, _) => continue,
            };
            // The whole sum has this many independent sums of `terms` terms.
            let (all, copies) = (grid.terms as f64, (grid.terms / terms) as f64 + 1.0);
            let share = mass * (position / all + 1.0);
            if share * all < NEGLIGIBLE {
                self.lost += copies * share;
            } else {
                self.positions.push(position);
                self.masses.push(mass);
            }
        }
    }
}

/// Returns `e^{μx - μ²/2}`.
fn value(shift: f64, x: f64) -> f64 {
    (shift * x - 0.5 * shift * shift).exp()
}

/// Returns the mass of the outcomes from `left` to `right`, and the integral of the distance of the
/// variable from `low`, its value at `left`.
fn integral(shift: f64, left: f64, right: f64, low: f64) -> (f64, f64) {
    let (mut mass, mut distance) = (0.0, 0.0);
    let extent = (right - left) * (2.0 + left.abs().max(right.abs()) + 2.0 * shift);
    let parts = (extent / EXTENT).ceil().max(1.0);
    let half = 0.5 * (right - left) / parts;
    for part in 0..parts as usize {
        let middle = left + half * (2 * part + 1) as f64;
        for (node, weight) in GAUSS_5 {
            let x = middle + half * node;
            let one = half * weight * (LN_DENSITY_AT_ZERO - 0.5 * x * x).exp();
            mass += one;
            distance += one * low * (shift * (x - left)).exp_m1();
        }
    }
    (mass, distance)
}
