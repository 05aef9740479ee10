//! The certified bracket of δ at one ε.

use super::bounds::Bracket;
use super::composition::{Composition, Lattices};
use super::fourier::GridError;
use super::grid_settings::{GridSettings, first_width, ln_alias, tail};
use super::tabulated::Tabulated;
use crate::dominating_pairs::{Direction, DominatingPairs, directions, largest_loss};
use crate::saddle::{Cumulants, Target};

/// Returns the bracket of δ at `epsilon` over both directions.
pub(crate) fn delta(pairs: &DominatingPairs, epsilon: f64, settings: &GridSettings) -> Bracket {
    let mut result = Bracket::default();
    for direction in directions(&pairs.parts) {
        let one = delta_one_direction(pairs, direction, epsilon, settings);
        if one.contradicts {
            return Bracket { upper: 1.0, ..one };
        }
        result.lower = result.lower.max(one.lower);
        result.upper = result.upper.max(one.upper);
        result.grid = result.grid.or(one.grid);
        result.note = result.note.take().or(one.note);
    }
    result
}

/// Returns the upper bound on δ at `epsilon` in the direction "add". `pairs` must have at least one
/// part.
pub(crate) fn delta_when_added(pairs: &DominatingPairs, epsilon: f64) -> f64 {
    if pairs.infinite.is_some() {
        return 1.0;
    }
    // Symmetric pairs have one direction.
    let direction = directions(&pairs.parts).pop().unwrap_or(Direction::Add);
    let settings = GridSettings { relative_width: 1e-2, free_points: 0, ..GridSettings::default() };
    delta_one_direction(pairs, direction, epsilon, &settings).upper
}

fn delta_one_direction(
    pairs: &DominatingPairs,
    direction: Direction,
    epsilon: f64,
    settings: &GridSettings,
) -> Bracket {
    let parts = &pairs.parts;
    let extra = pairs.mass_at_infinity + pairs.variation_at(epsilon);
    if epsilon >= largest_loss(parts, direction) {
        return Bracket { upper: extra.min(1.0), ..Bracket::default() };
    }
    if let Some(table) = Tabulated::of(pairs, direction) {
        let (lower, upper) = table.delta(epsilon);
        return Bracket { lower, upper: (upper + extra).min(1.0), ..Bracket::default() };
    }
    let mut cumulants = Cumulants::new(parts, direction, 1e-40);
    let mut best = Bracket {
        lower: 0.0,
        upper: 1.0,
        note: Some("no bracket was found".to_string()),
        ..Bracket::default()
    };
    let Some((_, ln_delta)) = cumulants.saddle_at(epsilon) else { return best };
    let guess = ln_delta.exp().clamp(1e-280, 1.0);
    let tail = tail(parts, guess, settings.tail_share());
    let mut cumulants = Cumulants::new(parts, direction, tail);
    let Some((saddle, _)) = cumulants.saddle_at(epsilon) else { return best };
    let mut width = first_width(parts, &saddle, settings.relative_width);
    // A relative width of δ is θ times an absolute width of ε.
    width *= (1.0 / (saddle.theta * saddle.epsilon).max(1.0)).sqrt();
    let mut coarser = 0;
    for _ in 0..settings.max_refinements {
        let ln_relative = ln_alias(settings.relative_width, 1.0);
        let aim = Target { theta: saddle.theta, epsilon, delta: guess, ln_relative };
        let target = cumulants.cheapest_tilt(aim);
        let attempt = Lattices::new(parts, direction, width, tail, settings.max_points)
            .and_then(|l| Composition::new(&l, target, true, settings.max_points));
        match attempt {
            Ok(composition) => {
                let (lower, upper) = composition.delta(epsilon);
                // The mass is a bound, which need not be attained; the lower end of loose pairs is
                // not used.
                let attained = if pairs.loose { pairs.mass_at_infinity } else { 0.0 };
                let lower = lower + attained - pairs.variation_at(epsilon);
                if upper + extra <= best.upper {
                    best.grid = Some(width);
                }
                best.narrow(lower, upper + extra);
                if best.contradicts {
                    break;
                }
                let gap = best.upper - best.lower;
                if gap <= settings.relative_width * best.upper {
                    best.note = None;
                    break;
                }
                best.note =
                    Some(format!("the bracket stayed wider than {}", settings.relative_width));
                if coarser > 0 {
                    break;
                }
                let ratio = settings.relative_width * best.upper / gap;
                width *= (0.8 * ratio).sqrt().clamp(0.1, 0.7);
            }
            Err(GridError::TooLarge(points)) if best.grid.is_none() && coarser < 6 => {
                coarser += 1;
                width *= 1.05 * points / settings.max_points as f64;
            }
            Err(GridError::TooLarge(points)) => {
                best.note = Some(format!("a narrower bracket needs {points:.0} grid points"));
                break;
            }
            Err(GridError::Overflow) => break,
        }
    }
    best
}
