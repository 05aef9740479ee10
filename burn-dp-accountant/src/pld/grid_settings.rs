//! Accuracy and size of the grids, and first guesses of their widths and tails.

use crate::dominating_pairs::Pair;
use crate::saddle::{Contour, Cumulants, Saddle, Target};

/// Requested accuracy and limits of the grids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GridSettings {
    /// Requested relative width of the bracket.
    pub(crate) relative_width: f64,
    /// Maximum number of grid points of one distribution, which limits memory and time.
    pub(crate) max_points: usize,
    /// Number of grid points that are used even if fewer reach the requested width, because they
    /// take only milliseconds.
    pub(crate) free_points: usize,
    /// Maximum number of grids.
    pub(crate) max_refinements: usize,
}

impl Default for GridSettings {
    fn default() -> Self {
        Self {
            relative_width: 1e-4,
            max_points: 1 << 22,
            free_points: 1 << 17,
            max_refinements: 12,
        }
    }
}

impl GridSettings {
    /// Returns the share of δ that the tails may omit: too little to widen the bracket. (The
    /// further out the losses of a rarely sampled mechanism are cut, the more they dominate its
    /// moments.)
    pub(super) fn tail_share(&self) -> f64 {
        (1e-2 * self.relative_width).clamp(1e-12, 1e-6)
    }

    /// Returns the width of the finest grid that takes only milliseconds; infinite if there is
    /// none. `loss_range` is the range of the losses of one release.
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
        // The transform covers the period of the aliases, or the range of the losses if it is
        // longer. A grid finer than for this relative width has no benefit.
        let finest = first_width(parts, saddle, FREE_RELATIVE_WIDTH);
        (contour.period.max(loss_range) / self.free_points as f64).max(finest)
    }
}

/// Relative width at which the refinement beyond the request ends.
const FREE_RELATIVE_WIDTH: f64 = 2e-6;

/// Returns the tail that each piece may omit, so that all together are this share of `delta`.
pub(super) fn tail(parts: &[(Pair, u64)], delta: f64, share: f64) -> f64 {
    let repetitions: f64 = parts
        .iter()
        .map(|(pair, n)| {
            let pieces = match pair {
                Pair::Symmetrized { components, .. } => 2 * components.len(),
                Pair::Mixture { components, .. } => components.len(),
                _ => 1,
            };
            pieces as f64 * *n as f64
        })
        .sum();
    (share * delta / repetitions).max(1e-290)
}

/// Returns a first guess of the grid width: the excess variance of a grid of width `h` is about
/// `h²/6` per release, which moves ε by `(θ+1) T h²/12` in each direction.
pub(super) fn first_width(parts: &[(Pair, u64)], saddle: &Saddle, relative_width: f64) -> f64 {
    let releases: f64 = parts.iter().map(|(_, n)| *n as f64).sum();
    let scale = saddle.epsilon.max(1e-3 * saddle.variance.sqrt()).max(1e-10);
    let by_error = (0.5 * relative_width * scale * 6.0 / ((saddle.theta + 1.0) * releases)).sqrt();
    // The composed distribution also needs some resolution.
    by_error.min(0.25 * saddle.variance.sqrt().max(0.1 * scale)).min(0.5)
}

/// Returns the logarithm of the aliases, relative to δ, that a bracket of this relative width
/// tolerates. `decay` is about the change of `ln δ` when ε changes by its own size.
pub(super) fn ln_alias(relative_width: f64, decay: f64) -> f64 {
    (0.01 * relative_width * slowest(decay)).ln()
}

/// Returns the decay, in the range in which it changes the shares of δ that an error may have.
pub(super) fn slowest(decay: f64) -> f64 {
    decay.clamp(1e-3, 1.0)
}
