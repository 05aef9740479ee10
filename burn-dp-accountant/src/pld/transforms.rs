//! The bracket of ε by transforms on uniform grids, refined until it is narrow enough.

use super::bounds::{ABSOLUTE_WIDTH, Bracket};
use super::composition::{Composition, Lattices};
use super::fourier::GridError;
use super::grid_settings::{GridSettings, first_width, ln_alias, slowest, tail};
use super::variation::with_variation;
use crate::dominating_pairs::{Direction, DominatingPairs, largest_loss};
use crate::lattice::span;
use crate::saddle::{Cumulants, Target};

/// Returns the bracket by transforms on uniform grids of up to `limit` points. If the limit is
/// below the largest of the settings, a grid beyond it ends the refinement.
pub(super) fn by_transforms(
    pairs: &DominatingPairs,
    direction: Direction,
    delta: f64,
    left: f64,
    settings: &GridSettings,
    limit: usize,
    known_lower: f64,
) -> Bracket {
    let parts = &pairs.parts;
    let tails = |share: f64| tail(parts, left, share * settings.tail_share());
    let tail = tails(1.0);
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
    // A direction that is far from being the larger one needs no fine grid, and neither does a poor
    // guess.
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
        // Near ε = 0, a small share of δ is a large part of ε.
        let tail = tails(slowest(theta * start));
        let attempt = Lattices::new(parts, direction, width, tail, limit);
        // The lower end of a direction that cannot be the larger one is not needed.
        let both = start >= known_lower * (1.0 - 1e-2) || pairs.total_variation > 0.0;
        let attempt = attempt.and_then(|l| Composition::new(&l, target, both, limit));
        let composition = match attempt {
            Ok(composition) => composition,
            Err(_) if narrow => break,
            Err(GridError::TooLarge(needed)) => {
                if limit < settings.max_points {
                    best.note = Some(format!("a narrower bracket needs {needed:.0} grid points"));
                    break;
                }
                // Tries the finest grid that fits, if it is a gain.
                width *= 1.05 * needed / limit as f64;
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
        narrow = best.is_within(settings.relative_width, known_lower);
        best.note =
            (!narrow).then(|| format!("the bracket stayed wider than {}", settings.relative_width));
        if narrow && (gap <= ABSOLUTE_WIDTH || free > 0.7 * width) {
            break;
        }
        if grown.is_infinite() && best.upper.is_infinite() {
            // The tilt is far from the optimum, hence the dominant masses are below rounding.
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
        // The saddle-point approximation can be poor; the bracket leads to a better tilt.
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
