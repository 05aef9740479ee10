//! The certified bracket: grids are refined until it is narrow enough.

use super::compose::{Composed, Refusal};
use super::contour::Target;
use super::lattice::{Discretized, Lattice, discretize, span};
use super::spectrum::Spectrum;
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

impl Effort {
    /// The share of δ that may be left out: far below what would widen the bracket. (The further out
    /// the losses of a rarely sampled mechanism are cut, the more of them decide its moments.)
    fn tail_share(&self) -> f64 {
        (1e-2 * self.relative_width).clamp(1e-12, 1e-6)
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

/// The lattices of one direction at one width.
pub(crate) struct Lattices {
    parts: Vec<(Discretized, u64)>,
    pub(crate) width: f64,
}

type Bound = fn(&Discretized) -> &Lattice;

const PESSIMISTIC: Bound = |discretized| &discretized.pessimistic;
const OPTIMISTIC: Bound = |discretized| &discretized.optimistic;

impl Lattices {
    pub(crate) fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        width: f64,
        tail: f64,
        max_points: usize,
    ) -> Result<Self, Refusal> {
        for (pair, _) in parts {
            let points = span(pair, direction, width, tail);
            if points > max_points as f64 {
                return Err(Refusal::TooLarge(points));
            }
        }
        let parts =
            parts.iter().map(|(pair, n)| (discretize(pair, direction, width, tail), *n)).collect();
        Ok(Self { parts, width })
    }

    fn chosen(&self, bound: Bound) -> Vec<(&Lattice, u64)> {
        self.parts.iter().map(|(d, n)| (bound(d), *n)).collect()
    }

    /// δ of losses that the pessimistic lattices put at infinity.
    fn infinite(&self) -> f64 {
        self.parts.iter().map(|(d, n)| d.infinite * *n as f64).sum()
    }

    fn spectrum(
        &self,
        bound: Bound,
        target: Target,
        max_points: usize,
    ) -> Result<Spectrum, Refusal> {
        Spectrum::new(&self.chosen(bound), self.width, target, max_points)
    }

    /// The pessimistic composition over the whole range of its losses, and the δ of the infinite ones.
    fn window(&self, theta: f64, max_points: usize) -> Result<(Composed, f64), Refusal> {
        let parts = self.chosen(PESSIMISTIC);
        Ok((Composed::new(&parts, self.width, theta, max_points)?, self.infinite()))
    }

    /// Both spectra. The two are independent of each other.
    fn spectra(&self, target: Target, max_points: usize) -> Result<(Spectrum, Spectrum), Refusal> {
        let (pessimistic, optimistic) = std::thread::scope(|scope| {
            let optimistic = scope.spawn(|| self.spectrum(OPTIMISTIC, target, max_points));
            let pessimistic = self.spectrum(PESSIMISTIC, target, max_points);
            (pessimistic, optimistic.join().unwrap_or(Err(Refusal::Overflow)))
        });
        Ok((pessimistic?, optimistic?))
    }
}

/// A composition with the δ of its infinite losses.
struct Composition {
    pessimistic: Spectrum,
    /// Absent where only an upper bound is of interest.
    optimistic: Option<Spectrum>,
    infinite: f64,
}

impl Composition {
    fn new(
        lattices: &Lattices,
        target: Target,
        both: bool,
        max_points: usize,
    ) -> Result<Self, Refusal> {
        let infinite = lattices.infinite();
        if both {
            let (pessimistic, optimistic) = lattices.spectra(target, max_points)?;
            Ok(Self { pessimistic, optimistic: Some(optimistic), infinite })
        } else {
            let pessimistic = lattices.spectrum(PESSIMISTIC, target, max_points)?;
            Ok(Self { pessimistic, optimistic: None, infinite })
        }
    }

    /// Bounds of δ at `epsilon`, without the extra δ of the ledger.
    fn delta(&self, epsilon: f64) -> (f64, f64) {
        let upper = (self.pessimistic.delta(epsilon, true) + self.infinite).min(1.0);
        let lower = self.optimistic.as_ref().map_or(0.0, |o| o.delta(epsilon, false));
        (lower.min(upper), upper)
    }

    /// Bounds of ε at `delta`, without the extra δ of the ledger, searched from `start`.
    fn epsilon(&self, delta: f64, start: f64) -> (f64, Option<f64>) {
        let left = delta - self.infinite;
        let upper = (left > 0.0).then(|| self.pessimistic.epsilon(left, true, start)).flatten();
        let start = upper.unwrap_or(start);
        let lower = self.optimistic.as_ref().and_then(|o| o.epsilon(delta, false, start));
        (lower.unwrap_or(0.0).max(0.0), upper.map(|e| e.max(0.0)))
    }
}

/// The tail that a piece may leave out, so that all of them together are this share of `delta`.
fn tail(parts: &[(Pair, u64)], delta: f64, share: f64) -> f64 {
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
    let tail = tail(parts, left, effort.tail_share());
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
    // Until something is known to contradict it, the saddle-point approximation is where to look.
    let mut start = saddle.epsilon.max(0.0);
    let mut theta = saddle.theta;
    // A direction that is far from deciding needs no fine grid, and a poor approximation deserves none.
    let margin = 0.4 * (known_lower - start) / known_lower.max(start);
    let light = cumulants.has_light_tails(theta);
    let wanted = if known_lower > 0.0 && margin > effort.relative_width {
        margin.min(0.05)
    } else if light {
        // The guess is reliable there: come closer to the wanted width at once.
        1.7 * effort.relative_width
    } else {
        25.0 * effort.relative_width
    };
    let mut width = first_width(parts, &saddle, wanted);
    let mut best = infinite("the grid would be too large".to_string());
    let mut previous: Option<(f64, f64)> = None;
    let mut idle = 0;
    for _ in 0..effort.max_refinements {
        let ln_relative = ln_alias(effort.relative_width, theta * start);
        let aim = Target { theta, epsilon: start, delta: left, ln_relative };
        let target = cumulants.cheapest_tilt(aim);
        let attempt = Lattices::new(parts, direction, width, tail, effort.max_points);
        // The lower end of a direction that cannot decide is of no interest.
        let both = start >= known_lower * (1.0 - 1e-2) || lowered.total_variation > 0.0;
        let attempt = attempt.and_then(|l| Composition::new(&l, target, both, effort.max_points));
        let composition = match attempt {
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
        let (lower, upper) = with_variation(&composition, lowered, delta, left, start);
        let grown = upper.unwrap_or(f64::INFINITY);
        if grown <= best.upper {
            best.upper = grown;
            best.grid = Some(width);
        }
        best.lower = best.lower.max(lower.min(best.upper));
        let gap = best.upper - best.lower.max(known_lower.min(best.upper));
        if gap.is_finite() && gap <= (effort.relative_width * best.upper).max(ABSOLUTE_WIDTH) {
            best.note = None;
            break;
        }
        best.note = Some(format!("the bracket stayed wider than {}", effort.relative_width));
        if grown.is_infinite() && best.upper.is_infinite() {
            // The tilt is far from where it belongs, hence the masses that decide are below rounding.
            theta *= 0.5;
            start = cumulants.chernoff(theta, left).max(0.0);
            width *= 0.7;
            continue;
        }
        let ratio = effort.relative_width * best.upper.min(1e300) / gap;
        // The gap falls with the square of the width; more slowly where a near-atom does not fit into
        // the grid. Rounding, not the grid, is the limit when finer grids stop to help.
        let order = previous.map_or(2.0, |(known_gap, known_width)| {
            (gap / known_gap).ln() / (width / known_width).ln()
        });
        idle += usize::from(order < 0.2);
        previous = Some((gap, width));
        if idle >= 2 {
            break;
        }
        // The saddle-point approximation can be poor; the bracket says where the tilt belongs.
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
    if lowered.total_variation == 0.0 && bounded < best.upper {
        best.upper = bounded;
        best.note.get_or_insert_with(|| "the upper end is the largest privacy loss".to_string());
    }
    best
}

/// Logarithm of the aliases that a bracket of this relative width tolerates, relative to δ; `decay` is
/// about how much `ln δ` changes when ε changes by its own size.
fn ln_alias(relative_width: f64, decay: f64) -> f64 {
    (0.01 * relative_width * decay.clamp(1e-3, 1.0)).ln()
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
    start: f64,
) -> (f64, Option<f64>) {
    let eta = lowered.total_variation;
    if eta == 0.0 {
        return composition.epsilon(left, start);
    }
    let (mut lower, _) = composition.epsilon((delta + 2.0 * eta).min(1.0), start);
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
    let (_, Some(start)) = composition.epsilon(left, start) else { return (lower, None) };
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
    let tail = tail(parts, guess, effort.tail_share());
    let mut cumulants = Cumulants::new(parts, direction, tail);
    let Some((saddle, _)) = cumulants.saddle_at(epsilon) else { return best };
    let mut width = first_width(parts, &saddle, effort.relative_width);
    // A relative width of δ is θ times an absolute width of ε.
    width *= (1.0 / (saddle.theta * saddle.epsilon).max(1.0)).sqrt();
    let mut coarser = 0;
    for _ in 0..effort.max_refinements {
        let ln_relative = ln_alias(effort.relative_width, 1.0);
        let aim = Target { theta: saddle.theta, epsilon, delta: guess, ln_relative };
        let target = cumulants.cheapest_tilt(aim);
        let attempt = Lattices::new(parts, direction, width, tail, effort.max_points)
            .and_then(|l| Composition::new(&l, target, true, effort.max_points));
        match attempt {
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
