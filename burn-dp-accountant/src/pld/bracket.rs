//! The certified bracket of ε: transforms and repeated squaring until the bracket is narrow enough.

use super::bounds::Bracket;
use super::grid_settings::GridSettings;
use super::squaring;
use super::tabulated::Tabulated;
use super::transforms::{ABSOLUTE_WIDTH, Points, WORTH_A_TRY, by_transforms, expected_draws};
use crate::dominating_pairs::{Direction, DominatingPairs, Pair, directions, largest_loss};

/// Numbers of grid points of the transforms before repeated squaring, if the unit is drawn rarely
/// in the whole training, and otherwise.
const QUICK_POINTS: [usize; 2] = [1 << 18, 1 << 21];

/// Expected number of draws of a unit below which its losses are rare.
const RARE_DRAWS: f64 = 0.1;

/// Returns the bracket of ε at `delta` over both directions. `pairs` must have at least one part.
pub(crate) fn epsilon(pairs: &DominatingPairs, delta: f64, settings: &GridSettings) -> Bracket {
    let mut result = Bracket::default();
    let left = delta - pairs.mass_at_infinity;
    if left <= 0.0 {
        result.upper = f64::INFINITY;
        result.note = Some("the events' own δ already exceeds the target δ".to_string());
        return result;
    }
    for direction in directions(&pairs.parts) {
        let one = one_direction(pairs, direction, delta, left, settings, result.lower);
        if one.contradicts {
            return one;
        }
        result.lower = result.lower.max(one.lower);
        result.upper = result.upper.max(one.upper);
        result.grid = match (result.grid, one.grid) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        result.note = result.note.take().or(one.note);
    }
    result
}

/// Returns the bracket in one direction: by transforms on small grids, and on a large one that is
/// predicted to be sufficient; if the result is wide, by repeated squaring; if this is also wide,
/// by transforms on large grids. The values in all brackets remain.
fn one_direction(
    pairs: &DominatingPairs,
    direction: Direction,
    delta: f64,
    left: f64,
    settings: &GridSettings,
    known_lower: f64,
) -> Bracket {
    // A direction that cannot be the larger one needs no grid.
    let exact = pairs.total_variation == 0.0;
    let bounded = largest_loss(&pairs.parts, direction);
    if exact && bounded <= known_lower {
        return Bracket { upper: bounded, ..Bracket::default() };
    }
    if let Some(table) = Tabulated::of(pairs, direction) {
        return table.epsilon(left);
    }
    let width = settings.relative_width;
    let is_narrow = |best: &Bracket| {
        best.upper - best.lower.max(known_lower) <= (width * best.upper).max(ABSOLUTE_WIDTH)
    };
    let transforms =
        |points: usize| by_transforms(pairs, direction, delta, left, settings, points, known_lower);
    // The methods in the order of their cost: brackets that small grids leave wide are mostly
    // dominated by a few rare losses, where one width for all losses needs far more work.
    let first = settings.max_points.min(quick_points(&pairs.parts));
    let (mut best, Points { used, needed }) = transforms(first);
    if best.note.is_none() || best.contradicts {
        return best;
    }
    // The gap falls with the square of the number of points.
    let growth = settings.max_points as f64 / first as f64;
    let gap = best.upper - best.lower.max(known_lower);
    let within_reach = needed <= WORTH_A_TRY * settings.max_points as f64
        || best.upper.is_finite() && gap <= growth * growth * width * best.upper;
    let settle = |best: &mut Bracket, more: Bracket| {
        let note = best.note.take();
        best.narrow(more.lower, more.upper);
        best.grid = more.grid.or(best.grid);
        if !best.contradicts {
            best.note = more.note.or(note).filter(|_| !is_narrow(best));
        }
        (best.note.is_none() || best.contradicts).then(|| best.clone())
    };
    let mut squared = false;
    if exact
        && let Some(more) =
            squaring::epsilon(&pairs.parts, direction, left, width, &best, known_lower)
    {
        if more.contradicts {
            return more;
        }
        squared = true;
        if let Some(done) = settle(&mut best, more) {
            return done;
        }
    }
    if settings.max_points > used && (!squared || within_reach) {
        let (more, _) = transforms(settings.max_points);
        if more.contradicts {
            return more;
        }
        settle(&mut best, more);
    }
    best
}

/// Returns the grid points that transforms may use before repeated squaring.
fn quick_points(parts: &[(Pair, u64)]) -> usize {
    match *parts {
        [(Pair::Sampled { .. }, _)] if expected_draws(parts) < RARE_DRAWS => QUICK_POINTS[0],
        [(Pair::Sampled { .. }, _)] => QUICK_POINTS[1],
        // Squaring is not available.
        _ => usize::MAX,
    }
}
