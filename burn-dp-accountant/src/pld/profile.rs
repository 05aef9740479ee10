//! The curve of δ over ε, for the trade-off function.

use super::composition::Lattices;
use super::fourier::GridError;
use super::grid_settings::{GridSettings, first_width, tail};
use crate::dominating_pairs::{DominatingPairs, directions, largest_loss};
use crate::math::side::Side;
use crate::saddle::Cumulants;

/// Returns upper bounds on δ at `points` values of ε, from 0 to the ε of δ = 1e-12. Without parts,
/// one bound holds for every ε.
pub(crate) fn profile(
    pairs: &DominatingPairs,
    points: usize,
    settings: &GridSettings,
) -> Option<Vec<(f64, f64)>> {
    let parts = &pairs.parts;
    if parts.is_empty() {
        let extra = pairs.mass_at_infinity + 2.0 * pairs.total_variation;
        return Some(vec![(0.0, extra.min(1.0))]);
    }
    let mut largest = 0.0f64;
    let mut compositions = Vec::new();
    for direction in directions(parts) {
        let tail = tail(parts, 1e-12, 1e-9);
        let mut cumulants = Cumulants::new(parts, direction, tail);
        // One tilt for all ε: the curve needs absolute accuracy, which a moderate δ provides.
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
        let mut width = first_width(parts, &saddle, settings.relative_width.max(1e-4));
        let composition = loop {
            let attempt = Lattices::new(parts, direction, width, tail, settings.max_points)
                .and_then(|l| l.window(saddle.theta, settings.max_points));
            match attempt {
                Ok(window) => break window,
                Err(GridError::TooLarge(needed)) if width < 1e3 => {
                    width *= 1.05 * (needed / settings.max_points as f64).max(1.05);
                }
                Err(_) => return None,
            }
        };
        compositions.push(composition);
    }
    let extra = |e: f64| pairs.mass_at_infinity + pairs.variation_at(e);
    // A direction without a composition has a bounded loss: its δ is 0 from that loss on. Below it,
    // the bound is 1.
    let bounded = directions(parts)
        .into_iter()
        .map(|d| largest_loss(parts, d))
        .filter(|_| compositions.len() < directions(parts).len())
        .fold(0.0, |m: f64, b| if b.is_finite() { m.max(b) } else { m });
    let value = |k: usize| {
        let epsilon = largest * (k as f64 / (points - 1) as f64).powi(2);
        let composed = compositions
            .iter()
            .map(|(c, infinite)| (c.delta(epsilon, Side::Upper) + infinite).min(1.0))
            .fold(0.0, f64::max);
        let composed = if epsilon < bounded { 1.0 } else { composed };
        (epsilon, (composed + extra(epsilon)).min(1.0))
    };
    Some((0..points).map(value).collect())
}
