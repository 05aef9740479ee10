//! How hard to try, and the first guesses of widths and tails.

use super::contour::{Contour, Target};
use crate::mechanism::Pair;
use crate::saddle::{Cumulants, Saddle};

/// How hard to try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Relative width of the bracket that is asked for.
    pub(crate) relative_width: f64,
    /// Largest number of grid points of one distribution: bounds memory and time.
    pub(crate) max_points: usize,
    /// Grids of up to this many points are used even where a coarser one would give the width that
    /// is asked for: they cost milliseconds.
    pub(crate) free_points: usize,
    /// Largest number of grids.
    pub(crate) max_refinements: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            relative_width: 1e-4,
            max_points: 1 << 22,
            free_points: 1 << 17,
            max_refinements: 12,
        }
    }
}

impl Effort {
    /// The share of δ that may be left out: far below what would widen the bracket. (The further out
    /// the losses of a rarely sampled mechanism are cut, the more of them decide its moments.)
    pub(super) fn tail_share(&self) -> f64 {
        (1e-2 * self.relative_width).clamp(1e-12, 1e-6)
    }

    /// The width of a grid that costs next to nothing, where it is finer than what is asked for;
    /// infinite where there is none. `loss_range` is the range of the losses of one release.
    pub(super) fn free_width(
        &self,
        parts: &[(Pair, u64)],
        cumulants: &mut Cumulants,
        saddle: &Saddle,
        target: Target,
        loss_range: f64,
    ) -> f64 {
        let deviation = saddle.variance.sqrt();
        let Some(contour) = Contour::new(target, deviation, |t| cumulants.at(t).0) else {
            return f64::INFINITY;
        };
        if self.free_points == 0 {
            return f64::INFINITY;
        }
        // Where the decay of the spectrum ends the period, not the range of the losses, is transformed;
        // a finer grid than for this width is of no use.
        let finest = first_width(parts, saddle, FREE_RELATIVE_WIDTH);
        (contour.period.max(loss_range) / self.free_points as f64).max(finest)
    }
}

/// Relative width beyond which nothing is refined without being asked for.
const FREE_RELATIVE_WIDTH: f64 = 2e-6;

/// The tail that a piece may leave out, so that all of them together are this share of `delta`.
pub(super) fn tail(parts: &[(Pair, u64)], delta: f64, share: f64) -> f64 {
    let repetitions: f64 = parts
        .iter()
        .map(|(pair, n)| {
            let pieces = match pair {
                Pair::Symmetrized { components, .. } => 2 * components.len(),
                _ => 1,
            };
            pieces as f64 * *n as f64
        })
        .sum();
    (share * delta / repetitions).max(1e-290)
}

/// A first guess of the width: the excess variance of a grid of width `h` is about `h²/6` per
/// release, which moves ε by `(θ+1) T h²/12` in each direction.
pub(super) fn first_width(parts: &[(Pair, u64)], saddle: &Saddle, relative_width: f64) -> f64 {
    let releases: f64 = parts.iter().map(|(_, n)| *n as f64).sum();
    let scale = saddle.epsilon.max(1e-3 * saddle.variance.sqrt()).max(1e-10);
    let by_error = (0.5 * relative_width * scale * 6.0 / ((saddle.theta + 1.0) * releases)).sqrt();
    // The composed distribution needs some resolution as well.
    by_error.min(0.25 * saddle.variance.sqrt().max(0.1 * scale)).min(0.5)
}

/// Logarithm of the aliases that a bracket of this relative width tolerates, relative to δ; `decay` is
/// about how much `ln δ` changes when ε changes by its own size.
pub(super) fn ln_alias(relative_width: f64, decay: f64) -> f64 {
    (0.01 * relative_width * decay.clamp(1e-3, 1.0)).ln()
}
