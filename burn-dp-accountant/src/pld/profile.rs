//! The whole curve of δ over ε, for the trade-off function.

use super::bracket::{directions, largest_loss};
use super::compose::Refusal;
use super::composition::Lattices;
use super::effort::{Effort, first_width, tail};
use crate::mechanism::Lowered;
use crate::saddle::Cumulants;

/// Upper bounds of δ at `points` values of ε from 0 to where δ is 1e-12.
pub(crate) fn profile(
    lowered: &Lowered,
    points: usize,
    effort: &Effort,
) -> Option<Vec<(f64, f64)>> {
    let parts = &lowered.parts;
    let mut largest = 0.0f64;
    let mut compositions = Vec::new();
    for direction in directions(parts) {
        let tail = tail(parts, 1e-12, 1e-9);
        let mut cumulants = Cumulants::new(parts, direction, tail);
        // One tilt for all: the curve needs absolute accuracy, which a moderate δ gives.
        let Some(saddle) = cumulants.saddle(1e-2).or_else(|| cumulants.saddle(1e-4)) else {
            let bound = largest_loss(parts, direction);
            if !bound.is_finite() {
                return None;
            }
            largest = largest.max(bound);
            continue;
        };
        let far = cumulants.saddle(1e-12).map_or(saddle.epsilon, |s| s.epsilon);
        largest = largest.max(far);
        let mut width = first_width(parts, &saddle, effort.relative_width.max(1e-4));
        let composition = loop {
            let attempt = Lattices::new(parts, direction, width, tail, effort.max_points)
                .and_then(|l| l.window(saddle.theta, effort.max_points));
            match attempt {
                Ok(window) => break window,
                Err(Refusal::TooLarge(needed)) if width < 1e3 => {
                    width *= 1.05 * (needed / effort.max_points as f64).max(1.05);
                }
                Err(_) => return None,
            }
        };
        compositions.push(composition);
    }
    let extra = |e: f64| lowered.mass_at_infinity + (1.0 + e.exp()) * lowered.total_variation;
    // A direction without a composition has a bounded loss: its δ is 0 from there on; below, 1 is
    // the only bound at hand.
    let bounded = directions(parts)
        .into_iter()
        .map(|d| largest_loss(parts, d))
        .filter(|_| compositions.len() < directions(parts).len())
        .fold(0.0, |m: f64, b| if b.is_finite() { m.max(b) } else { m });
    let value = |k: usize| {
        let epsilon = largest * (k as f64 / (points - 1) as f64).powi(2);
        let pairs = compositions
            .iter()
            .map(|(c, infinite)| (c.delta(epsilon, true) + infinite).min(1.0))
            .fold(0.0, f64::max);
        let pairs = if epsilon < bounded { 1.0 } else { pairs };
        (epsilon, (pairs + extra(epsilon)).min(1.0))
    };
    Some((0..points).map(value).collect())
}
