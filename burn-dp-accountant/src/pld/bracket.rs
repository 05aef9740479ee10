//! The certified bracket: grids are refined until it is narrow enough.

use super::compose::{Composed, Refusal};
use super::lattice::{Discretized, discretize, span};
use crate::mechanism::{Direction, Lowered, Pair};
use crate::saddle::{Cumulants, Saddle};

/// How hard to try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Relative width of the bracket to reach.
    pub(crate) relative_width: f64,
    /// Largest number of grid points of one distribution: bounds memory and time.
    pub(crate) max_points: usize,
    /// Largest number of grids.
    pub(crate) max_refinements: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { relative_width: 1e-4, max_points: 1 << 22, max_refinements: 12 }
    }
}

/// A bracket of ε or δ, with the grid it was found on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bracket {
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    pub(crate) grid: Option<f64>,
    /// Why it is wider than wanted.
    pub(crate) note: Option<String>,
}

/// Absolute width below which no bracket is refined.
const ABSOLUTE_WIDTH: f64 = 1e-12;

/// Both lattice compositions of one direction.
pub(crate) struct Composition {
    pessimistic: Composed,
    optimistic: Composed,
    /// δ of losses that the lattice puts at infinity.
    infinite: f64,
    pub(crate) width: f64,
}

impl Composition {
    pub(crate) fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        width: f64,
        theta: f64,
        tail: f64,
        effort: &Effort,
    ) -> Result<Self, Refusal> {
        for (pair, _) in parts {
            let points = span(pair, direction, width, tail);
            if points > effort.max_points as f64 {
                return Err(Refusal::TooLarge(points));
            }
        }
        let lattices: Vec<(Discretized, u64)> =
            parts.iter().map(|(pair, n)| (discretize(pair, direction, width, tail), *n)).collect();
        let infinite = lattices.iter().map(|(d, n)| d.infinite * *n as f64).sum();
        let compose = |choose: fn(&Discretized) -> &super::lattice::Lattice| {
            let parts: Vec<_> = lattices.iter().map(|(d, n)| (choose(d), *n)).collect();
            Composed::new(&parts, width, theta, effort.max_points)
        };
        // The two bounds are independent of each other.
        let (pessimistic, optimistic) = std::thread::scope(|scope| {
            let optimistic = scope.spawn(|| compose(|d| &d.optimistic));
            (compose(|d| &d.pessimistic), optimistic.join().unwrap_or(Err(Refusal::Overflow)))
        });
        Ok(Self { pessimistic: pessimistic?, optimistic: optimistic?, infinite, width })
    }

    /// Bounds of δ at `epsilon`, without the extra δ of the ledger.
    pub(crate) fn delta(&self, epsilon: f64) -> (f64, f64) {
        let upper = (self.pessimistic.delta(epsilon, true) + self.infinite).min(1.0);
        (self.optimistic.delta(epsilon, false).min(upper), upper)
    }

    /// Bounds of ε at `delta`, without the extra δ of the ledger.
    fn epsilon(&self, delta: f64) -> (f64, Option<f64>) {
        let upper = self.pessimistic.epsilon(delta - self.infinite, true);
        let lower = self.optimistic.epsilon(delta, false);
        (lower.unwrap_or(0.0).max(0.0), upper.map(|e| e.max(0.0)))
    }
}

/// The tail that a piece may leave out, so that all of them together are far below `delta`.
pub(crate) fn tail(parts: &[(Pair, u64)], delta: f64) -> f64 {
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
    (1e-9 * delta / repetitions).max(1e-290)
}

/// A first guess of the width: the excess variance of a grid of width `h` is about `h²/6` per
/// release, which moves ε by `(θ+1) T h²/12` in each direction.
pub(crate) fn first_width(parts: &[(Pair, u64)], saddle: &Saddle, relative_width: f64) -> f64 {
    let releases: f64 = parts.iter().map(|(_, n)| *n as f64).sum();
    let scale = saddle.epsilon.max(1e-3 * saddle.variance.sqrt()).max(1e-10);
    let by_error = (0.5 * relative_width * scale * 6.0 / ((saddle.theta + 1.0) * releases)).sqrt();
    // The composed distribution needs some resolution as well.
    by_error.min(0.25 * saddle.variance.sqrt().max(0.1 * scale)).min(0.5)
}

/// Bracket of ε at `delta` over both directions. `lowered` must have at least one part.
pub(crate) fn epsilon(lowered: &Lowered, delta: f64, effort: &Effort) -> Bracket {
    let mut result = Bracket::default();
    let left = delta - lowered.mass_at_infinity;
    if left <= 0.0 {
        result.upper = f64::INFINITY;
        result.note = Some("the events' own δ already exceeds the target δ".to_string());
        return result;
    }
    for direction in directions(&lowered.parts) {
        let one = one_direction(lowered, direction, delta, left, effort, result.lower);
        result.lower = result.lower.max(one.lower);
        result.upper = result.upper.max(one.upper);
        result.grid = match (result.grid, one.grid) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        result.note = result.note.take().or(one.note);
    }
    result.lower = result.lower.min(result.upper);
    result
}

pub(crate) fn directions(parts: &[(Pair, u64)]) -> Vec<Direction> {
    if parts.iter().all(|(pair, _)| pair.is_symmetric()) {
        vec![Direction::Remove]
    } else {
        vec![Direction::Remove, Direction::Add]
    }
}

fn one_direction(
    lowered: &Lowered,
    direction: Direction,
    delta: f64,
    left: f64,
    effort: &Effort,
    known_lower: f64,
) -> Bracket {
    let parts = &lowered.parts;
    let tail = tail(parts, left);
    let mut cumulants = Cumulants::new(parts, direction, tail);
    let infinite =
        |note: String| Bracket { lower: 0.0, upper: f64::INFINITY, grid: None, note: Some(note) };
    // A direction that cannot decide needs no grid.
    let bounded = largest_loss(parts, direction);
    if lowered.total_variation == 0.0 && bounded <= known_lower {
        return Bracket { upper: bounded, ..Bracket::default() };
    }
    let Some(saddle) = cumulants.saddle(left) else {
        if bounded.is_finite() && lowered.total_variation == 0.0 {
            return Bracket {
                upper: bounded,
                note: Some("the bound of one direction is its largest privacy loss".to_string()),
                ..Bracket::default()
            };
        }
        return infinite("no saddle point: the privacy loss is too extreme".to_string());
    };
    if lowered.total_variation == 0.0 {
        // The cumulants leave out a tail that is far below δ.
        let chernoff = cumulants.chernoff(saddle.theta, left * (1.0 - 1e-6));
        if chernoff <= known_lower {
            return Bracket { upper: chernoff, ..Bracket::default() };
        }
    }
    let mut width = first_width(parts, &saddle, effort.relative_width);
    let mut theta = cumulants.cheapest_tilt(saddle.theta, saddle.epsilon.max(0.0), left);
    if cumulants.has_light_tails(theta) {
        // The guess is reliable there: come closer to the wanted width at once.
        width *= 1.3;
    }
    let mut best = infinite("the grid would be too large".to_string());
    let mut previous_gap = f64::INFINITY;
    let mut idle = 0;
    for _ in 0..effort.max_refinements {
        let composition = match Composition::new(parts, direction, width, theta, tail, effort) {
            Ok(composition) => composition,
            Err(Refusal::TooLarge(points)) => {
                // The finest grid that fits, if that is a gain.
                let limit = effort.max_points as f64;
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
            Err(Refusal::Overflow) => {
                best.note.get_or_insert_with(|| "the tilt overflows".to_string());
                break;
            }
        };
        let (lower, upper) = with_variation(&composition, lowered, delta, left);
        let grown = upper.unwrap_or(f64::INFINITY);
        if grown <= best.upper {
            best.upper = grown;
            best.grid = Some(composition.width);
        }
        best.lower = best.lower.max(lower.min(best.upper));
        let gap = best.upper - best.lower.max(known_lower.min(best.upper));
        if gap <= (effort.relative_width * best.upper).max(ABSOLUTE_WIDTH) {
            best.note = None;
            break;
        }
        best.note = Some(format!("the bracket stayed wider than {}", effort.relative_width));
        let ratio = effort.relative_width * best.upper.min(1e300) / gap;
        // Rounding, not the grid, is the limit when finer grids stop to help.
        idle += usize::from(gap > 0.6 * previous_gap);
        previous_gap = gap;
        if idle >= 2 {
            break;
        }
        // The saddle-point approximation can be poor; the bracket says where the tilt belongs.
        let middle = 0.5 * (best.lower + best.upper);
        if best.upper.is_finite()
            && let Some((better, _)) = cumulants.saddle_at(middle)
        {
            theta = cumulants.cheapest_tilt(better.theta, middle, left);
        }
        width *= if ratio.is_finite() { (0.8 * ratio).sqrt().clamp(0.1, 0.7) } else { 0.3 };
    }
    if lowered.total_variation == 0.0 && bounded < best.upper {
        best.upper = bounded;
        best.note.get_or_insert_with(|| "the upper end is the largest privacy loss".to_string());
    }
    best
}

/// The largest privacy loss of the composition: a bound of ε for every δ. Infinite if there is none.
pub(crate) fn largest_loss(parts: &[(Pair, u64)], direction: Direction) -> f64 {
    let one = |pair: &Pair| match *pair {
        Pair::Sampled { q, .. } if direction == Direction::Add => -(-q).ln_1p(),
        Pair::Laplace { mu } | Pair::SampledLaplace { mu, .. } => mu,
        Pair::RandomizedResponse { epsilon } => epsilon,
        _ => f64::INFINITY,
    };
    parts.iter().map(|(pair, n)| *n as f64 * one(pair)).sum::<f64>() * (1.0 + 1e-12)
}

/// The bracket with the total variation `η` of the ledger: `δ ± (1 + e^ε) η`.
fn with_variation(
    composition: &Composition,
    lowered: &Lowered,
    delta: f64,
    left: f64,
) -> (f64, Option<f64>) {
    let eta = lowered.total_variation;
    if eta == 0.0 {
        let (lower, upper) = composition.epsilon(left);
        return (lower, upper);
    }
    let (mut lower, _) = composition.epsilon((delta + 2.0 * eta).min(1.0));
    let upper_delta =
        |e: f64| composition.delta(e).1 + lowered.mass_at_infinity + (1.0 + e.exp()) * eta;
    let lower_delta =
        |e: f64| composition.delta(e).0 + lowered.mass_at_infinity - (1.0 + e.exp()) * eta;
    // Downwards from the value without the correction, by bisection.
    if lower_delta(lower) < delta {
        let (mut a, mut b) = (0.0, lower);
        for _ in 0..60 {
            let middle = 0.5 * (a + b);
            if lower_delta(middle) >= delta { a = middle } else { b = middle }
        }
        lower = if lower_delta(a) >= delta { a } else { 0.0 };
    }
    let (_, Some(start)) = composition.epsilon(left) else { return (lower, None) };
    if upper_delta(start) <= delta {
        return (lower, Some(start));
    }
    let (mut a, mut b) = (start, start.max(1e-6));
    let mut step = 1e-6;
    while upper_delta(b) > delta {
        b += step;
        step *= 2.0;
        if b > 700.0 {
            return (lower, None);
        }
    }
    for _ in 0..80 {
        let middle = 0.5 * (a + b);
        if upper_delta(middle) <= delta { b = middle } else { a = middle }
    }
    (lower, Some(b))
}

/// Bracket of δ at `epsilon` over both directions.
pub(crate) fn delta(lowered: &Lowered, epsilon: f64, effort: &Effort) -> Bracket {
    let mut result = Bracket::default();
    for direction in directions(&lowered.parts) {
        let one = delta_one_direction(lowered, direction, epsilon, effort);
        result.lower = result.lower.max(one.lower);
        result.upper = result.upper.max(one.upper);
        result.grid = result.grid.or(one.grid);
        result.note = result.note.take().or(one.note);
    }
    result.lower = result.lower.min(result.upper);
    result
}

fn delta_one_direction(
    lowered: &Lowered,
    direction: Direction,
    epsilon: f64,
    effort: &Effort,
) -> Bracket {
    let parts = &lowered.parts;
    let extra = lowered.mass_at_infinity + (1.0 + epsilon.exp()) * lowered.total_variation;
    let mut cumulants = Cumulants::new(parts, direction, 1e-40);
    let mut best = Bracket {
        lower: 0.0,
        upper: 1.0,
        grid: None,
        note: Some("no bracket was found".to_string()),
    };
    let Some((_, ln_delta)) = cumulants.saddle_at(epsilon) else { return best };
    let guess = ln_delta.exp().clamp(1e-280, 1.0);
    let tail = tail(parts, guess);
    let mut cumulants = Cumulants::new(parts, direction, tail);
    let Some((saddle, _)) = cumulants.saddle_at(epsilon) else { return best };
    let mut width = first_width(parts, &saddle, effort.relative_width);
    // A relative width of δ is θ times an absolute width of ε.
    width *= (1.0 / (saddle.theta * saddle.epsilon).max(1.0)).sqrt();
    let mut coarser = 0;
    for _ in 0..effort.max_refinements {
        match Composition::new(parts, direction, width, saddle.theta, tail, effort) {
            Ok(composition) => {
                let (lower, upper) = composition.delta(epsilon);
                let lower = lower + lowered.mass_at_infinity
                    - (1.0 + epsilon.exp()) * lowered.total_variation;
                if upper + extra <= best.upper {
                    best.upper = (upper + extra).min(1.0);
                    best.grid = Some(width);
                }
                best.lower = best.lower.max(lower.min(best.upper));
                let gap = best.upper - best.lower;
                if gap <= effort.relative_width * best.upper {
                    best.note = None;
                    break;
                }
                best.note =
                    Some(format!("the bracket stayed wider than {}", effort.relative_width));
                if coarser > 0 {
                    break;
                }
                let ratio = effort.relative_width * best.upper / gap;
                width *= (0.8 * ratio).sqrt().clamp(0.1, 0.7);
            }
            Err(Refusal::TooLarge(points)) if best.grid.is_none() && coarser < 6 => {
                coarser += 1;
                width *= 1.05 * points / effort.max_points as f64;
            }
            Err(Refusal::TooLarge(points)) => {
                best.note = Some(format!("a narrower bracket needs {points:.0} grid points"));
                break;
            }
            Err(Refusal::Overflow) => break,
        }
    }
    best
}

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
        let tail = tail(parts, 1e-12);
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
            match Composition::new(parts, direction, width, saddle.theta, tail, effort) {
                Ok(composition) => break composition,
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
        let pairs = compositions.iter().map(|c| c.delta(epsilon).1).fold(0.0, f64::max);
        let pairs = if epsilon < bounded { 1.0 } else { pairs };
        (epsilon, (pairs + extra(epsilon)).min(1.0))
    };
    Some((0..points).map(value).collect())
}
