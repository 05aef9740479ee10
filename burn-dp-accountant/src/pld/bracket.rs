//! The certified bracket of ε: the grid is refined until the bracket is narrow enough.

use super::bounds::Bracket;
use super::composition::{Composition, Lattices};
use super::fourier::GridError;
use super::grid_settings::{GridSettings, first_width, ln_alias, tail};
use super::squaring;
use super::tabulated::Tabulated;
use super::variation::with_variation;
use crate::dominating_pairs::{Direction, DominatingPairs, Pair, directions, largest_loss};
use crate::lattice::span;
use crate::saddle::{Cumulants, Target};

/// Absolute width below which a bracket is not refined.
const ABSOLUTE_WIDTH: f64 = 1e-12;

/// Grid points of the transforms that come before repeated squaring, where the unit is drawn rarely
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

/// Returns the bracket in one direction: by transforms on small grids; where that is wide, by
/// repeated squaring; where that is wide too, by transforms on large grids. The values in all
/// brackets remain.
fn one_direction(
    pairs: &DominatingPairs,
    direction: Direction,
    delta: f64,
    left: f64,
    settings: &GridSettings,
    known_lower: f64,
) -> Bracket {
    // A direction that cannot decide needs no grid.
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
    let transforms = |max_points: usize| {
        let limited = GridSettings { max_points, ..*settings };
        by_transforms(pairs, direction, delta, left, &limited, known_lower)
    };
    // The methods in the order of their cost: what small grids leave wide is mostly what a few rare
    // losses decide, where one width for all losses needs far more work.
    let first = settings.max_points.min(quick_points(&pairs.parts));
    let mut best = transforms(first);
    if best.note.is_none() || best.contradicts {
        return best;
    }
    // The gap falls with the square of the number of points.
    let growth = settings.max_points as f64 / first as f64;
    let gap = best.upper - best.lower.max(known_lower);
    let within_reach = gap <= growth * growth * width * best.upper;
    let settle = |best: &mut Bracket, more: Bracket| {
        let note = best.note.take();
        best.narrow(more.lower, more.upper);
        best.grid = more.grid.or(best.grid);
        if !best.contradicts {
            best.note = more.note.or(note).filter(|_| !is_narrow(best));
        }
        (best.note.is_none() || best.contradicts).then(|| best.clone())
    };
    if exact
        && let Some(more) = squaring::epsilon(&pairs.parts, direction, left, width, known_lower)
    {
        if more.contradicts {
            return more;
        }
        if let Some(done) = settle(&mut best, more) {
            return done;
        }
    }
    if settings.max_points > first && (within_reach || best.upper.is_infinite()) {
        let more = transforms(settings.max_points);
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
        [(Pair::Sampled { q, .. }, n)] if q * (n as f64) < RARE_DRAWS => QUICK_POINTS[0],
        [(Pair::Sampled { .. }, _)] => QUICK_POINTS[1],
        // There is no squaring.
        _ => usize::MAX,
    }
}

/// Returns the bracket by transforms on uniform grids.
fn by_transforms(
    pairs: &DominatingPairs,
    direction: Direction,
    delta: f64,
    left: f64,
    settings: &GridSettings,
    known_lower: f64,
) -> Bracket {
    let parts = &pairs.parts;
    let tail = tail(parts, left, settings.tail_share());
    let mut cumulants = Cumulants::new(parts, direction, tail);
    let infinite = |note: String| Bracket { note: Some(note), ..Bracket::unknown() };
    let bounded = largest_loss(parts, direction);
    let Some(saddle) = cumulants.saddle(left) else {
        if bounded.is_finite() && pairs.total_variation == 0.0 {
            let note = "the bound of one direction is its largest privacy loss".to_string();
            return Bracket { upper: bounded, ..infinite(note) };
        }
        let note = "no saddle point was found: the privacy loss is too extreme".to_string();
        return infinite(note);
    };
    if pairs.total_variation == 0.0 && cumulants.are_exact() {
        // The cumulants omit a tail that is far below δ.
        let chernoff = cumulants.chernoff(saddle.theta, left * (1.0 - 1e-6));
        if chernoff <= known_lower {
            return Bracket { upper: chernoff, ..Bracket::default() };
        }
    }
    // The search starts at the saddle-point approximation.
    let mut start = saddle.epsilon.max(0.0);
    let mut theta = saddle.theta;
    // A direction that is far from deciding needs no fine grid, and neither does a poor guess.
    let margin = 0.4 * (known_lower - start) / known_lower.max(start);
    let light = cumulants.has_light_tails(theta);
    let wanted = if known_lower > 0.0 && margin > settings.relative_width {
        margin.min(0.05)
    } else if light {
        // The guess is reliable: the first grid is close to the requested width.
        1.7 * settings.relative_width
    } else {
        25.0 * settings.relative_width
    };
    let mut width = first_width(parts, &saddle, wanted);
    let decides = known_lower == 0.0 || margin <= settings.relative_width;
    let loss_range =
        parts.iter().map(|(pair, _)| span(pair, direction, 1.0, tail) - 4.0).fold(0.0, f64::max);
    let mut best =
        infinite("the grid would be too large; see PldAccountant::with_max_points".to_string());
    let mut previous: Option<(f64, f64)> = None;
    let mut idle = 0;
    let mut narrow = false;
    for _ in 0..settings.max_refinements {
        let ln_relative = ln_alias(settings.relative_width, theta * start);
        let aim = Target { theta, epsilon: start, delta: left, ln_relative };
        let target = cumulants.cheapest_tilt(aim);
        let free = if decides {
            settings.free_width(parts, &mut cumulants, &saddle, target, loss_range)
        } else {
            f64::INFINITY
        };
        // A poor guess of the width is corrected before the free refinement.
        if light || narrow {
            width = width.min(free);
        }
        let attempt = Lattices::new(parts, direction, width, tail, settings.max_points);
        // The lower end of a direction that cannot decide is not needed.
        let both = start >= known_lower * (1.0 - 1e-2) || pairs.total_variation > 0.0;
        let attempt = attempt.and_then(|l| Composition::new(&l, target, both, settings.max_points));
        let composition = match attempt {
            Ok(composition) => composition,
            Err(_) if narrow => break,
            Err(GridError::TooLarge(points)) => {
                // Tries the finest grid that fits, if it is a gain.
                let limit = settings.max_points as f64;
                width *= 1.05 * points / limit;
                if best.grid.is_some_and(|known| width > 0.85 * known) {
                    best.note = Some(format!(
                        "a narrower bracket than {:.1e} needs more than {limit} grid points",
                        (best.upper - best.lower) / best.upper
                    ));
                    break;
                }
                continue;
            }
            Err(GridError::Overflow) => {
                best.note.get_or_insert_with(|| "the tilt overflows".to_string());
                break;
            }
        };
        let (lower, upper) = with_variation(&composition, pairs, delta, left, start);
        let grown = upper.unwrap_or(f64::INFINITY);
        if grown <= best.upper {
            best.grid = Some(width);
        }
        best.narrow(lower, grown);
        if best.contradicts {
            return best;
        }
        let gap = best.upper - best.lower.max(known_lower.min(best.upper));
        narrow = gap <= (settings.relative_width * best.upper).max(ABSOLUTE_WIDTH);
        best.note =
            (!narrow).then(|| format!("the bracket stayed wider than {}", settings.relative_width));
        if narrow && (gap <= ABSOLUTE_WIDTH || free > 0.7 * width) {
            break;
        }
        if grown.is_infinite() && best.upper.is_infinite() {
            // The tilt is far from the optimum, hence the masses that decide are below rounding.
            theta *= 0.5;
            start = cumulants.chernoff(theta, left).max(0.0);
            width *= 0.7;
            continue;
        }
        let ratio = settings.relative_width * best.upper.min(1e300) / gap;
        // The gap decreases with the square of the width, and more slowly if a near-atom does not
        // fit into the grid. If finer grids do not help, rounding is the limit.
        let order = previous.map_or(2.0, |(known_gap, known_width)| {
            (gap / known_gap).ln() / (width / known_width).ln()
        });
        idle += usize::from(order < 0.2);
        previous = Some((gap, width));
        if idle >= 2 {
            break;
        }
        // The saddle-point approximation can be poor; the bracket gives a better tilt.
        if best.upper.is_finite() {
            start = if best.lower > 0.0 { 0.5 * (best.lower + best.upper) } else { best.upper };
            if let Some((better, _)) = cumulants.saddle_at(start) {
                theta = better.theta;
            }
        }
        let power = 1.0 / order.clamp(0.7, 2.0);
        let power = if power.is_finite() { power } else { 0.5 };
        width *= if ratio > 0.0 { (0.9 * ratio).powf(power).clamp(0.1, 0.8) } else { 0.3 };
    }
    if pairs.total_variation == 0.0 && bounded < best.upper {
        best.narrow(0.0, bounded);
        best.note.get_or_insert_with(|| "the upper end is the largest privacy loss".to_string());
    }
    best
}
