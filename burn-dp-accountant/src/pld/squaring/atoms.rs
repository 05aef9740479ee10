//! Atoms of a privacy loss at free positions, and their composition.
//!
//! With `f = 1 - e^{-Y}` the hockey-stick divergence is `δ(ε) = e^ε E_P[(f - f_ε)^+]`,
//! `f_ε = 1 - e^{-ε}`, and a composition has `f = f_1 + f_2 (1 - f_1)`. The divergence of a
//! composition is convex in each `f` and increases with it. Hence
//!
//! - splitting the mass of a cell between its two ends without moving its mean, or raising it, can
//!   only make δ larger: [`Side::Upper`];
//! - merging the mass of a cell at its mean, or dropping it, can only make δ smaller:
//!   [`Side::Lower`].
//!
//! After each composition the products are brought to a new grid in one of these two ways. All
//! terms are positive, so that small masses keep their relative accuracy.
//!
//! Rounding: δ is linear in every mass, with coefficients that are not negative. A relative error
//! of the masses of one release is one of δ, and the errors of a composition add up
//! ([`Atoms::relative`]). Positions are moved to the safe side before they are composed, by more
//! than what the composition rounds ([`NUDGE`]).
//!
//! # References
//!
//! "Faster Privacy Accounting via Evolving Discretization", Ghazi, Kamath, Kumar, Manurangsi 2022.

use std::cmp::Ordering;

use super::products::{Products, Row};
use crate::math::side::Side;

/// Masses below this are raised to the next atom or dropped: below every δ, but not subnormal.
const NEGLIGIBLE: f64 = 1e-100;

/// Relative distance by which positions are moved to the safe side before a composition.
///
/// With `c = 8u` and both positions moved, `f_1 (1 ± c) + f_2 (1 ± c) (1 - f_1)` is off the exact
/// composition by at least `7u |f_1| + 6u |f_2| (1 - f_1)` after the rounding of the product. The
/// rounding of the sum is at most `u` of both, and so is the rounding of a merge.
const NUDGE: f64 = 4.0 * f64::EPSILON;

/// A bound of all masses that underflow.
const UNDERFLOW: f64 = 1e-250;

/// A distribution of `f` that bounds the true one from one side.
#[derive(Debug, Clone)]
pub(super) struct Atoms {
    side: Side,
    /// Positions, ascending, at most 1. A loss of 1 is infinite.
    pub(super) positions: Vec<f64>,
    pub(super) masses: Vec<f64>,
    /// Bound of the relative error of δ by the masses.
    relative: f64,
}

impl Atoms {
    /// Creates the atoms of one release from the masses of the cells of `grid` (mass, and mean
    /// distance from the lower end times the mass) with a relative error of the masses.
    pub(super) fn of_cells(
        side: Side,
        grid: &[f64],
        cells: &[[f64; 2]],
        relative_error: f64,
    ) -> Self {
        let mut atoms = Self {
            side,
            positions: Vec::with_capacity(grid.len()),
            masses: Vec::with_capacity(grid.len()),
            relative: relative_error,
        };
        match side {
            Side::Upper => atoms.split(grid, cells),
            Side::Lower => atoms.merge(grid, cells, relative_error),
        }
        atoms
    }

    /// Composes two distributions of one side, on the cells of a grid that ends at 1.
    ///
    /// The rarest products, with a mass of at most `negligible` together, are raised to an infinite
    /// loss or dropped.
    pub(super) fn compose(&self, other: &Self, grid: &[f64], negligible: f64) -> Self {
        let same = std::ptr::eq(self, other);
        let (own, others) = (self.nudged(), other.nudged());
        let mut products = Products::new(self.side, grid, &others, &other.masses);
        let tails = other.tails();
        let negligible = negligible / own.len() as f64;
        for (i, (&fi, &pi)) in own.iter().zip(&self.masses).enumerate() {
            let rest = 1.0 - self.positions[i];
            let row = Row { start: fi, rest };
            if same {
                // A square counts each pair of different atoms twice. The row has the larger loss:
                // the places of the many small losses are then close to each other.
                let end = tails.partition_point(|tail| 2.0 * pi * tail > negligible);
                products.add(0..i.min(end), row, 2.0 * pi);
                if i < end {
                    products.add(i..i + 1, row, pi);
                } else {
                    products.raise(2.0 * pi * tails[end]);
                }
            } else {
                let end = tails.partition_point(|tail| pi * tail > negligible);
                products.add(0..end, row, pi);
                products.raise(pi * tails[end]);
            }
            products.end_row();
        }
        let (cells, terms) = products.finish();
        let error = terms * f64::EPSILON;
        let mut composed = Self::of_cells(self.side, grid, &cells, error);
        composed.relative = self.relative + other.relative + 2.0 * error;
        composed
    }

    /// Splits the mass of each cell between its ends.
    ///
    /// If the rounding of the difference lowers the mass at the lower end, a relative error of the
    /// whole mass, at the upper end if more than half of it is there, makes up for it.
    fn split(&mut self, grid: &[f64], cells: &[[f64; 2]]) {
        let mut carried = 0.0;
        for (c, &[mass, distance]) in cells.iter().enumerate() {
            let up = match grid.get(c + 1) {
                Some(next) => (distance / (next - grid[c])).min(mass),
                None => 0.0,
            };
            let here = carried + (mass - up);
            carried = up;
            if here < NEGLIGIBLE && c + 1 < cells.len() {
                carried += here;
            } else {
                self.push(grid[c], here);
            }
        }
    }

    /// Merges the mass of each cell at its mean, lowered by its rounding.
    fn merge(&mut self, grid: &[f64], cells: &[[f64; 2]], error: f64) {
        for (&low, &[mass, distance]) in grid.iter().zip(cells) {
            if mass >= NEGLIGIBLE {
                self.push(low + distance / mass * (1.0 - 3.0 * error), mass);
            }
        }
    }

    fn push(&mut self, position: f64, mass: f64) {
        self.positions.push(position);
        self.masses.push(mass);
    }

    /// Returns for each atom its mass and that of all behind it, and 0 at the end.
    fn tails(&self) -> Vec<f64> {
        let mut tails = vec![0.0; self.masses.len() + 1];
        for (i, mass) in self.masses.iter().enumerate().rev() {
            tails[i] = tails[i + 1] + mass;
        }
        tails
    }

    /// Returns 1 for an upper and -1 for a lower bound.
    fn sign(&self) -> f64 {
        if self.side == Side::Upper { 1.0 } else { -1.0 }
    }

    /// Returns the positions, moved to the safe side for a composition.
    fn nudged(&self) -> Vec<f64> {
        let share = self.sign() * NUDGE;
        self.positions.iter().map(|f| f + share * f.abs()).collect()
    }

    /// Moves all positions below 1 to the safe side by `share · (|f| + size)`.
    pub(super) fn move_positions(&mut self, share: f64, size: f64) {
        let sign = self.sign();
        for f in self.positions.iter_mut().filter(|f| **f < 1.0) {
            *f = (*f + sign * share * (f.abs() + size)).min(1.0);
        }
    }

    /// Returns the bound of δ at `epsilon`.
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let sign = self.sign();
        let end = -(-epsilon).exp_m1() * (1.0 - sign * NUDGE);
        let above = self.positions.partition_point(|f| *f <= end);
        let pairs = self.positions[above..].iter().zip(&self.masses[above..]);
        let sum: f64 = pairs.map(|(f, p)| p * (f - end)).sum();
        let relative = self.relative + self.masses.len() as f64 * f64::EPSILON + 1e-13;
        let delta = sum * epsilon.exp() * (sign * relative).exp() + sign * UNDERFLOW;
        delta.clamp(0.0, 1.0)
    }

    /// Returns the bound of ε at `delta`, by bisection. `None` if it is above `most`.
    pub(super) fn epsilon(&self, delta: f64, most: f64) -> Option<f64> {
        let above = |epsilon: f64| match self.side {
            // What is not a number bounds nothing.
            Side::Upper => self.delta(epsilon).partial_cmp(&delta).is_none_or(Ordering::is_gt),
            Side::Lower => self.delta(epsilon) >= delta,
        };
        if !above(0.0) {
            return Some(0.0);
        }
        if above(most) {
            return (self.side == Side::Lower).then_some(most);
        }
        let (mut low, mut high) = (0.0, most);
        for _ in 0..200 {
            let middle = if low > 0.0 && high > 2.0 * low {
                f64::sqrt(low * high)
            } else if low == 0.0 && high > 1e-14 {
                0.01 * high
            } else {
                0.5 * (low + high)
            };
            if above(middle) {
                low = middle
            } else {
                high = middle
            }
            if high - low <= 1e-13 * high {
                break;
            }
        }
        Some(if self.side == Side::Upper { high } else { low })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses 0 and 1 with probabilities 3/4 and 1/4, on a grid without their places.
    fn coin(side: Side) -> (Atoms, Vec<f64>) {
        let position = -(-1f64).exp_m1();
        let grid: Vec<f64> = (0..4000).map(|i| -0.1 + f64::from(i) * 2.75e-4).collect();
        let grid: Vec<f64> = grid.into_iter().filter(|f| *f < 0.99999).chain([1.0]).collect();
        let mut cells = vec![[0.0; 2]; grid.len()];
        for (f, mass) in [(0.0, 0.75), (position, 0.25)] {
            let cell = grid.partition_point(|g| *g <= f) - 1;
            cells[cell] = [mass, mass * (f - grid[cell])];
        }
        (Atoms::of_cells(side, &grid, &cells, 1e-15), grid)
    }

    #[test]
    fn composition_of_coins_is_between_the_bounds() {
        for epsilon in [0.3, 1.5, 2.7] {
            let choose = [1.0, 5.0, 10.0, 10.0, 5.0, 1.0];
            let truth: f64 = (0..6)
                .filter(|k| f64::from(*k) > epsilon)
                .map(|k| {
                    let mass = choose[k as usize] * 0.25f64.powi(k) * 0.75f64.powi(5 - k);
                    mass * -(epsilon - f64::from(k)).exp_m1()
                })
                .sum();
            let bound = |side| {
                let (one, grid) = coin(side);
                let two = one.compose(&one, &grid, 0.0);
                two.compose(&two, &grid, 0.0).compose(&one, &grid, 0.0).delta(epsilon)
            };
            let (low, high) = (bound(Side::Lower), bound(Side::Upper));
            assert!(low <= truth && truth <= high, "{epsilon}: {low} {truth} {high}");
            assert!(high / low - 1.0 < 1e-3, "{epsilon}: {low} {high}");
        }
    }

    #[test]
    fn negligible_products_move_the_bounds_apart_by_their_mass() {
        // Losses of 0 and above that are rarer by orders of magnitude.
        let grid: Vec<f64> = (0..200).map(|i| f64::from(i) * 5e-3).chain([1.0]).collect();
        let cells: Vec<_> =
            (0..201).map(|i| [0.1 * 10f64.powf(-0.05 * f64::from(i)), 0.0]).collect();
        for epsilon in [0.0, 0.5, 2.0] {
            let bound = |side, negligible| {
                let one = Atoms::of_cells(side, &grid, &cells, 1e-15);
                let two = one.compose(&one, &grid, negligible);
                two.compose(&one, &grid, negligible).delta(epsilon)
            };
            for negligible in [1e-9, 1e-7, 1e-5] {
                let (low, upper) = (Side::Lower, Side::Upper);
                let dropped = bound(low, 0.0) - bound(low, negligible);
                let raised = bound(upper, negligible) - bound(upper, 0.0);
                // The mass of one distribution is 0.92.
                let most = 2.0 * negligible * f64::exp(epsilon);
                assert!((0.0..=most).contains(&dropped), "{epsilon} {negligible}: {dropped:e}");
                assert!((0.0..=most).contains(&raised), "{epsilon} {negligible}: {raised:e}");
                assert!(raised > 1e-3 * negligible, "{epsilon} {negligible}: {raised:e}");
            }
        }
    }

    #[test]
    fn epsilon_inverts_delta_on_both_sides() {
        for side in [Side::Lower, Side::Upper] {
            let (one, _) = coin(side);
            let epsilon = one.epsilon(0.05, 10.0).unwrap_or(f64::NAN);
            assert!((one.delta(epsilon) / 0.05 - 1.0).abs() < 1e-9, "{side:?} {epsilon}");
            assert_eq!(one.epsilon(0.9, 10.0), Some(0.0));
        }
    }
}
