//! One release whose privacy loss is a table: sums over its atoms, without a grid.

use super::bounds::Bracket;
use crate::dominating_pairs::{Direction, DominatingPairs, Pair};

/// Tails that the sums may omit, as a share of δ or absolute.
const TAIL: f64 = 1e-25;

/// Relative error of a sum of positive terms.
const ROUNDING: f64 = 1e-11;

/// The bounds of one release.
pub(super) struct Tabulated {
    upper: Vec<(f64, f64)>,
    lower: Vec<(f64, f64)>,
    infinite: f64,
}

impl Tabulated {
    /// Returns the release if the events are one table, without total variation.
    pub(super) fn of(pairs: &DominatingPairs, direction: Direction) -> Option<Self> {
        if pairs.total_variation > 0.0 {
            return None;
        }
        match &pairs.parts[..] {
            [(Pair::Allocated(allocation), 1)] => {
                let upper = allocation.upper(direction, TAIL);
                let lower = allocation.lower(direction, TAIL);
                Some(Self { upper: upper.atoms, lower, infinite: upper.infinite })
            }
            [(Pair::Bounded(table), 1)] => Some(Self {
                upper: table.atoms().to_vec(),
                lower: Vec::new(),
                infinite: table.infinite(),
            }),
            _ => None,
        }
    }

    /// Returns bounds on δ at `epsilon`.
    pub(super) fn delta(&self, epsilon: f64) -> (f64, f64) {
        let upper = sum(&self.upper, epsilon) * (1.0 + ROUNDING) + self.infinite;
        (sum(&self.lower, epsilon) * (1.0 - ROUNDING), upper.min(1.0))
    }

    /// Returns the bracket of ε at `delta`.
    pub(super) fn epsilon(&self, delta: f64) -> Bracket {
        let upper = smallest(&self.upper, |e| self.delta(e).1 <= delta);
        let lower = smallest(&self.lower, |e| self.delta(e).0 < delta).unwrap_or(0.0);
        let mut bracket = Bracket::unknown();
        match upper {
            Some(upper) => bracket.narrow(lower * (1.0 - 1e-12), upper),
            None => bracket.note = Some("δ is below the cut tails of the table".to_string()),
        }
        bracket
    }
}

fn sum(atoms: &[(f64, f64)], epsilon: f64) -> f64 {
    let above = atoms.partition_point(|(loss, _)| *loss <= epsilon);
    atoms[above..].iter().map(|(loss, mass)| mass * -(epsilon - loss).exp_m1()).sum()
}

/// Returns the smallest ε that is `fine`, rounded up; `None` if even the largest loss is not.
fn smallest(atoms: &[(f64, f64)], fine: impl Fn(f64) -> bool) -> Option<f64> {
    if fine(0.0) {
        return Some(0.0);
    }
    let (mut low, mut high) = (0.0, atoms.last().map_or(0.0, |(loss, _)| loss.max(0.0)));
    if !fine(high) {
        return None;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if fine(middle) {
            high = middle
        } else {
            low = middle
        }
        if high - low <= 1e-13 * high {
            break;
        }
    }
    Some(high)
}
