//! The atoms of one Gaussian release under Poisson sampling.
//!
//! `f` is monotone in the outcome `x`, and `(f - f_0) dP` is a sum of two normal densities for both
//! directions. Five nodes integrate each part of length `ℓ` with an extent `X = (2 + |x| + 2μ) ℓ`
//! of at most 0.15: the error is at most `3.1 · 1.43e-6 X^10 <= 3e-14` of each density (the
//! derivation is in `lattice/quadrature.rs`), and the exponentials round by less than that.

use super::atoms::Atoms;
use crate::dominating_pairs::Direction;
use crate::lattice::GAUSS_5;
use crate::math::normal;
use crate::math::side::Side;

/// Largest extent of one part.
const EXTENT: f64 = 0.15;

/// Bound of the relative error of each mass.
const MASS_ERROR: f64 = 2e-13;

/// Bound of the error of the mean of `f` in a cell, relative to the largest `|f|` and `q`.
const MEAN_ERROR: f64 = 2e-13;

/// Bound of the error of a position, relative to `|f| + q`: the rounding of the exponential.
const POSITION_ERROR: f64 = 1e-13;

/// One release in one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampledRelease {
    pub(super) q: f64,
    pub(super) mu: f64,
    pub(super) direction: Direction,
}

impl SampledRelease {
    /// Returns `f` at the outcome `x`.
    pub(super) fn position(&self, x: f64) -> f64 {
        let excess = self.q * (self.mu * x - 0.5 * self.mu * self.mu).exp_m1();
        match self.direction {
            Direction::Remove => excess / (1.0 + excess),
            Direction::Add => -excess,
        }
    }

    /// Returns the outcome at which `f` is `position`; infinite if there is none.
    fn outcome(&self, position: f64) -> f64 {
        let excess = match self.direction {
            Direction::Remove => position / (1.0 - position),
            Direction::Add => -position,
        } / self.q;
        if excess <= -1.0 {
            return f64::NEG_INFINITY;
        }
        (excess.ln_1p() + 0.5 * self.mu * self.mu) / self.mu
    }

    /// Returns the mass under `P` of the outcomes from `left` to `right`, and the integral of
    /// `f - low` over them.
    fn cell(&self, left: f64, right: f64, low: f64) -> (f64, f64) {
        let (mut mass, mut distance) = (0.0, 0.0);
        let extent = (right - left) * (2.0 + left.abs().max(right.abs()) + 2.0 * self.mu);
        let parts = (extent / EXTENT).ceil().max(1.0);
        let half = 0.5 * (right - left) / parts;
        for part in 0..parts as usize {
            let middle = left + half * (2 * part + 1) as f64;
            for (node, weight) in GAUSS_5 {
                let x = middle + half * node;
                let normal = half * weight * (normal::LN_DENSITY_AT_ZERO - 0.5 * x * x).exp();
                let excess = self.q * (self.mu * x - 0.5 * self.mu * self.mu).exp_m1();
                match self.direction {
                    Direction::Remove => {
                        mass += normal * (1.0 + excess);
                        distance += normal * (excess - low * (1.0 + excess));
                    }
                    Direction::Add => {
                        mass += normal;
                        distance += normal * (-excess - low);
                    }
                }
            }
        }
        (mass, distance.max(0.0))
    }

    /// Returns the probability under `P` of outcomes above `x`, or below if not `up`.
    fn beyond(&self, x: f64, up: bool) -> f64 {
        let normal = |mean: f64| normal::cdf(if up { mean - x } else { x - mean });
        let mass = match self.direction {
            Direction::Remove => (1.0 - self.q) * normal(0.0) + self.q * normal(self.mu),
            Direction::Add => normal(0.0),
        };
        mass * (1.0 + 1e-12)
    }

    /// Returns the atoms of one side on about this grid of `f`. The outcomes beyond `ends`, which
    /// are rare, become the worst that they can be, or are dropped.
    pub(super) fn atoms(&self, side: Side, grid: &[f64], ends: (f64, f64)) -> Atoms {
        let mut outcomes: Vec<f64> = grid.iter().map(|f| self.outcome(*f)).collect();
        outcomes.retain(|x| *x > ends.0 && *x < ends.1);
        outcomes.extend([ends.0, ends.1]);
        outcomes.sort_by(f64::total_cmp);
        if self.direction == Direction::Add {
            outcomes.reverse();
        }
        // Outcomes so close that their positions are equal share a cell.
        outcomes.dedup_by(|later, kept| self.position(*later) <= self.position(*kept));
        // The last cell reaches to the end in any case.
        if let Some(last) = outcomes.last_mut() {
            *last = if self.direction == Direction::Add { ends.0 } else { ends.1 };
        }
        let mut positions: Vec<f64> = outcomes.iter().map(|x| self.position(*x)).collect();
        let mut cells: Vec<[f64; 2]> = Vec::with_capacity(positions.len() + 1);
        for (ends, low) in outcomes.windows(2).zip(&positions) {
            let (left, right) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let (mass, distance) = self.cell(left, right, *low);
            let high = positions[cells.len() + 1];
            let error = mass * MEAN_ERROR * (low.abs() + high.abs() + 2.0 * self.q);
            cells.push(match side {
                Side::Upper => [mass, distance + error],
                Side::Lower => [mass, (distance - error).max(0.0)],
            });
        }
        cells.push([0.0; 2]);
        positions.push(1.0);
        cells.push([0.0; 2]);
        if side == Side::Upper {
            let (below, above) = (self.beyond(ends.0, false), self.beyond(ends.1, true));
            let (lowest, highest) = match self.direction {
                Direction::Remove => (below, above),
                Direction::Add => (above, below),
            };
            cells[0][0] += lowest;
            if let Some(last) = cells.last_mut() {
                last[0] += highest;
            }
        }
        let mut atoms = Atoms::of_cells(side, &positions, &cells, MASS_ERROR);
        atoms.move_positions(POSITION_ERROR, self.q);
        atoms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_release_is_between_its_bounds_where_positions_coincide() {
        // Under "add" nearly all outcomes have the largest loss -ln(1-q), up to rounding.
        for (q, mu) in [(1e-3, 12.0), (0.3, 1.0)] {
            let (remove, add) = (Direction::Remove, Direction::Add);
            let grid: Vec<f64> = (0..4000).map(|i| -1.0 + f64::from(i) * 4.999e-4).collect();
            for direction in [remove, add] {
                let release = SampledRelease { q, mu, direction };
                let ends = (-9.0, mu + 9.0);
                let epsilon = 0.5 * q;
                // The outcome whose loss is ε bounds the half-line where the loss is larger.
                let end = release.outcome(-(-epsilon).exp_m1());
                let (plain, shifted) = match direction {
                    Direction::Remove => (normal::cdf(-end), normal::cdf(mu - end)),
                    Direction::Add => (normal::cdf(end), normal::cdf(end - mu)),
                };
                let mixed = (1.0 - q) * plain + q * shifted;
                let truth = match direction {
                    Direction::Remove => mixed - epsilon.exp() * plain,
                    Direction::Add => plain - epsilon.exp() * mixed,
                };
                let low = release.atoms(Side::Lower, &grid, ends).delta(epsilon);
                let high = release.atoms(Side::Upper, &grid, ends).delta(epsilon);
                let context = format!("{q} {mu} {direction:?}: {low} {truth} {high}");
                assert!(low <= truth * (1.0 + 1e-12) && truth <= high * (1.0 + 1e-12), "{context}");
                assert!(high - low < 0.01 * truth, "{context}");
            }
        }
    }
}
