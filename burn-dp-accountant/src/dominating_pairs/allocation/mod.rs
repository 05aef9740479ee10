//! Random allocation: a unit takes part in exactly one of `t` steps, chosen uniformly.
//!
//! With Gaussian noise of standard deviation 1 and a contribution of norm `μ` the pair is
//! `P = (1/t) Σ N(μ e_i, I)` against `Q = N(0, I)`. It also dominates steps that depend on earlier
//! outputs: a step with direction `u` and norm `c <= 1` is a rotation of a coordinate, scaled and
//! with more noise. Under `Q` the likelihood ratio is `S/t`, `S` the sum of `t` independent
//! log-normal variables `W = e^{μx - μ²/2}`, and for every `α` the hockey-stick divergence
//! `E_Q[(S/t - α)^+]` is a convex functional of `S`. Hence
//!
//! - splitting masses of `W` or of partial sums without moving the mean makes the divergence of
//!   both directions larger ([`Side::Upper`]);
//! - merging masses at their mean makes it smaller ([`Side::Lower`]).
//!
//! Both survive sums of independent variables and compositions. The sums are computed by repeated
//! doubling on grids that are fine near the mean (`sums`). Outcomes of `W` beyond `c` are set to 0
//! and their mass under `P`, `Φ(μ - c)`, becomes an infinite loss.
//!
//! Rounding: all masses and positions are sums and products of positive numbers. The result is
//! exact for `W (1 + ξ)` with `|ξ|` below [`NUDGE`], which moves each loss by less than that. The
//! rounding of the masses of one term counts once for each bin.
//!
//! # References
//!
//! "Balls-and-Bins Sampling for DP-SGD", Chua et al. 2025 (the pair); "Privacy Amplification by
//! Random Allocation", Feldman and Shenfeld 2025 (several steps); "Efficient privacy loss
//! accounting for subsampling and random allocation", Feldman and Shenfeld 2026, arXiv 2602.17284
//! (the privacy loss distribution of random allocation).
//!
//! dp_accounting 0.6.0 has no random allocation to compare with. Golden rows and simulations are
//! the oracles.

mod sums;

use std::sync::{Arc, Mutex, PoisonError};

use super::direction::Direction;
use crate::math::normal;
use crate::math::side::Side;
use crate::threads;
use sums::SumDistribution;

/// Distance of the cut from the mean of the shifted component.
const REACH: f64 = 10.0;

/// Bound on the change of a loss by rounding, up to the rounding of one term times the bins.
const NUDGE: f64 = 1e-10;

/// Bound on the relative error of a mass, up to the rounding of one term times the bins.
const MASS_ERROR: f64 = 1e-9;

/// Maximum shift with a table: beyond it, the likelihood ratios overflow and nothing is amplified.
pub(super) const LARGEST_SHIFT: f64 = 15.0;

/// Number of cached tables.
const KEPT: usize = 16;

/// One bound of the likelihood ratio under `Q`.
#[derive(Debug)]
struct RatioBound {
    /// Losses `ln(S/t)` under "remove", ascending, and their masses under `Q`.
    losses: Vec<(f64, f64)>,
    /// Mass under `Q` of a likelihood ratio of 0.
    zero: f64,
    /// Relative rounding of one term, once for each bin.
    rounding: f64,
}

/// The privacy loss of random allocation, from both sides.
#[derive(Debug)]
struct AllocationTable {
    bins: u64,
    shift: f64,
    upper: RatioBound,
    lower: RatioBound,
    /// Mass under `P` of the outcomes that the upper bound cuts.
    cut: f64,
}

/// The privacy loss of random allocation to one of several bins; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Allocation(Arc<AllocationTable>);

impl PartialEq for Allocation {
    fn eq(&self, other: &Self) -> bool {
        self.0.bins == other.0.bins && self.0.shift == other.0.shift
    }
}

/// Losses and masses under `P` that bound the pair, and the mass at an infinite loss.
#[derive(Debug)]
pub(crate) struct LossDistribution {
    pub(crate) atoms: Vec<(f64, f64)>,
    pub(crate) infinite: f64,
}

static TABLES: Mutex<Vec<Allocation>> = Mutex::new(Vec::new());

impl Allocation {
    /// Returns the pair of `bins >= 2` and a shift of at most [`LARGEST_SHIFT`]. The table is
    /// cached for the next call.
    pub(super) fn new(bins: u64, shift: f64) -> Self {
        let known = |tables: &Vec<Self>| {
            tables.iter().find(|a| a.0.bins == bins && a.0.shift == shift).cloned()
        };
        let tables = || TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known(&tables()) {
            return found;
        }
        let made = Self(Arc::new(AllocationTable::new(bins, shift)));
        let mut tables = tables();
        if tables.len() >= KEPT {
            tables.remove(0);
        }
        tables.push(made.clone());
        made
    }

    /// Returns the shift of the bin that is chosen.
    pub(crate) fn shift(&self) -> f64 {
        self.0.shift
    }

    /// Returns losses that are worse than the true ones. The largest losses, of mass at most
    /// `tail`, become infinite, and the smallest ones become equal.
    pub(crate) fn upper(&self, direction: Direction, tail: f64) -> LossDistribution {
        let table = &self.0;
        let mut infinite = match direction {
            Direction::Remove => table.cut,
            Direction::Add => table.upper.zero,
        };
        let mut atoms = table.upper.atoms(direction, Side::Upper);
        let mut dropped = 0.0;
        while let Some(&(_, mass)) = atoms.last()
            && dropped + mass <= tail
            && atoms.len() > 2
        {
            dropped += mass;
            atoms.pop();
        }
        infinite += dropped;
        let lowest = lowest_kept(&atoms, tail);
        let raised: f64 = atoms.drain(..lowest).map(|(_, mass)| mass).sum();
        if let Some(first) = atoms.first_mut() {
            first.1 += raised;
        }
        LossDistribution { atoms, infinite }
    }

    /// Returns losses that are better than the true ones, without tails of mass `tail`.
    pub(crate) fn lower(&self, direction: Direction, tail: f64) -> Vec<(f64, f64)> {
        let mut atoms = self.0.lower.atoms(direction, Side::Lower);
        atoms.drain(..lowest_kept(&atoms, tail));
        atoms
    }
}

/// Returns the number of smallest losses whose mass is at most `tail`.
fn lowest_kept(atoms: &[(f64, f64)], tail: f64) -> usize {
    let mut sum = 0.0;
    let below = atoms.iter().take_while(|(_, mass)| {
        sum += mass;
        sum <= tail
    });
    below.count().min(atoms.len().saturating_sub(2))
}

impl RatioBound {
    fn new(sums: &SumDistribution, bins: u64) -> Self {
        let bins = bins as f64;
        let rounding = 4.0 * f64::EPSILON * bins;
        let (mut losses, mut zero) = (Vec::new(), 0.0);
        for (position, mass) in sums.atoms() {
            if position > 0.0 {
                losses.push(((position / bins).ln(), mass));
            } else {
                zero += mass;
            }
        }
        Self { losses, zero, rounding }
    }

    /// Returns ascending losses and their masses under `P` in one direction. Losses and masses are
    /// moved to the side.
    fn atoms(&self, direction: Direction, side: Side) -> Vec<(f64, f64)> {
        let sign = if side == Side::Upper { 1.0 } else { -1.0 };
        let moved = sign * (NUDGE + self.rounding);
        let scale = (1.0 + sign * (MASS_ERROR + self.rounding)).max(0.0);
        let one = |&(loss, mass): &(f64, f64)| match direction {
            Direction::Remove => (loss + moved, mass * loss.exp() * scale),
            Direction::Add => (-loss + moved, mass * scale),
        };
        match direction {
            Direction::Remove => self.losses.iter().map(one).collect(),
            Direction::Add => self.losses.iter().rev().map(one).collect(),
        }
    }
}

impl AllocationTable {
    fn new(bins: u64, shift: f64) -> Self {
        let sums = |side| SumDistribution::of(side, bins, shift, REACH);
        let (upper, lower) = threads::both(|| sums(Side::Upper), || sums(Side::Lower));
        let lower = lower.unwrap_or_else(|| SumDistribution::nothing(Side::Lower));
        let cut = normal::cdf(-REACH) * (1.0 + 1e-9) + upper.lost();
        let mut upper_bound = RatioBound::new(&upper, bins);
        upper_bound.zero += upper.lost();
        Self { bins, shift, upper: upper_bound, lower: RatioBound::new(&lower, bins), cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(atoms: &[(f64, f64)], epsilon: f64) -> f64 {
        let above = atoms.iter().filter(|(loss, _)| *loss > epsilon);
        above.map(|(loss, mass)| mass * -(epsilon - loss).exp_m1()).sum()
    }

    #[test]
    fn bounds_enclose_the_golden_delta_of_both_directions() {
        // `balls_in_bins_exact` of golden/sampler_accounting.json.
        for (bins, sigma, epsilon, remove, add) in [
            (2, 1.0, 1.0, 0.059206501085892656, 0.050197662369488236),
            (2, 0.6, 4.0, 0.009494447093170131, 0.001983390127806535),
            (10, 1.0, 0.5, 0.026850355983446317, 0.0190641129481348),
            (100, 0.6, 1.0, 0.004868508005784644, 4.461701377518268e-06),
            (1000, 0.8, 0.1, 0.0017585897081875412, 0.0010981574727796017),
        ] {
            let allocation = Allocation::new(bins, 1.0 / sigma);
            for (direction, truth) in [(Direction::Remove, remove), (Direction::Add, add)] {
                let upper = allocation.upper(direction, 1e-20);
                let high = delta(&upper.atoms, epsilon) + upper.infinite;
                let low = delta(&allocation.lower(direction, 1e-20), epsilon);
                let context = format!("{bins} {sigma} {direction:?}: {low} {truth} {high}");
                assert!(low <= truth + 1e-13 && truth <= high + 1e-13, "{context}");
                let width = if truth > 1e-5 { 3e-3 } else { 5e-2 };
                assert!(high - low < width * truth, "{context}");
            }
        }
    }

    #[test]
    fn cut_and_dropped_tails_become_infinite_losses() {
        let allocation = Allocation::new(10, 1.0);
        let all = allocation.upper(Direction::Remove, 0.0);
        assert!(all.infinite >= normal::cdf(-REACH), "{}", all.infinite);
        for direction in [Direction::Remove, Direction::Add] {
            let cut = allocation.upper(direction, 1e-3);
            let mass: f64 = cut.atoms.iter().map(|(_, mass)| mass).sum();
            assert!(cut.infinite > 1e-5 && mass + cut.infinite >= 1.0 - 1e-12, "{direction:?}");
            // Smaller losses are raised to the lowest one that is kept.
            assert!(cut.atoms[0].0 > allocation.upper(direction, 0.0).atoms[0].0);
        }
    }

    #[test]
    fn masses_of_both_neighbors_add_up_to_one() {
        for (bins, shift) in [(2, 3.0), (7, 0.3), (1 << 20, 1.0)] {
            let table = AllocationTable::new(bins, shift);
            for bound in [&table.upper, &table.lower] {
                let q: f64 = bound.losses.iter().map(|(_, mass)| mass).sum::<f64>() + bound.zero;
                let p: f64 = bound.losses.iter().map(|(loss, mass)| mass * loss.exp()).sum();
                assert!((q - 1.0).abs() < 1e-10 && (p - 1.0).abs() < 1e-10, "{bins}: {q} {p}");
            }
        }
    }
}
