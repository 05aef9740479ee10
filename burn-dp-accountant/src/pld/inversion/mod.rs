//! The bracket of ε of a sampled Gaussian release, by certified inversion of its moments.
//!
//! A grid of losses has one width for the many losses near 0 and for the few large ones, and its
//! errors add up over all releases. The moments along a contour need no grid: they are integrals
//! with a proven error (`panels`, `moments`), and the sum over their powers bounds δ from both
//! sides (`smoothed`).
//!
//! Losses above a cut far above ε only occur with hardly any probability, but would dominate the
//! moments: they have a closed form ([`RareLosses`]), up to what [`omitted_delta`] bounds.

mod moments;
mod panels;
mod smoothed;

use std::f64::consts::TAU;

use self::moments::Moments;
use self::panels::KeptRelease;
use self::smoothed::{Plan, Smoothed, ln_truncated};
use super::bounds::Bracket;
use super::fourier::fast_size;
use crate::dominating_pairs::{Direction, Pair, Tail, ln_mixture};
use crate::exact::{RareLosses, omitted_delta};
use crate::math::normal;
use crate::saddle::{Contour, Cumulants, Target};

/// Maximum number of contours, and of those after the requested width was reached.
const CONTOURS: usize = 12;
const FURTHER_CONTOURS: usize = 1;

/// The width that is aimed at for ordinary ε, as a share of the requested one: a narrower bracket
/// costs hardly anything there, and a calibration adds less noise with it.
const AIM: f64 = 0.1;

/// Largest ε for which the rare losses have a closed form.
const LARGEST_EPSILON: f64 = 100.0;

/// Largest shift (inverse noise multiplier).
const LARGEST_SHIFT: f64 = 20.0;

/// Largest angle between neighboring points of the lattice of the moments.
const RESOLUTION: f64 = 0.8;

/// Share of the requested width that the smoothing is to take on the first contour.
const FIRST_SMOOTHING: f64 = 0.1;
/// Share below which other errors dominate, and share up to which it is raised where less needs too
/// many moments.
const LEAST_SMOOTHING: f64 = 1e-7;
const MOST_SMOOTHING: f64 = 3.0;

/// Share of the requested width for each of the other errors.
const TOLERATED: f64 = 0.01;

/// Share of the requested width that the omitted losses may take.
const OMITTED: f64 = 0.1;

/// Range of a contour above its own ε.
const RANGE: f64 = 1.1;

/// One direction of a repeated release.
struct Search {
    pair: [(Pair, u64); 1],
    q: f64,
    mu: f64,
    direction: Direction,
    /// The δ of the lower and of the upper end.
    delta: f64,
    left: f64,
    /// About the slope of `-ln δ` at ε.
    theta: f64,
    width: f64,
    max_points: usize,
}

/// The losses that the moments contain.
struct Kept {
    cut: f64,
    /// The losses above the cut in closed form.
    rare: Option<RareLosses>,
    /// Bound of the part of δ that neither the moments nor the closed form contain.
    omitted: f64,
}

/// Returns the width that the inversion aims at where `width` is requested, for an ε of at most
/// `epsilon`.
pub(super) fn aim(parts: &[(Pair, u64)], width: f64, epsilon: f64) -> f64 {
    let applies = matches!(parts, [(Pair::Sampled { .. }, _)]) && epsilon <= LARGEST_EPSILON;
    if applies { AIM * width } else { width }
}

/// Returns the bracket in one direction, with a note if it is wider than `width`: the lower end at
/// the δ of the budget, the upper end at what is `left` of it without the additive δ of the events,
/// which is a bound. `None` if the parts are not the repetition of one sampled Gaussian release.
pub(super) fn epsilon(
    parts: &[(Pair, u64)],
    direction: Direction,
    (delta, left): (f64, f64),
    width: f64,
    max_points: usize,
    known_lower: f64,
) -> Option<Bracket> {
    let [(Pair::Sampled { q, mu }, count)] = *parts else { return None };
    if q >= 1.0 || mu > LARGEST_SHIFT {
        return None;
    }
    let pair = [(Pair::Sampled { q, mu }, count)];
    let theta = f64::NAN;
    let search = Search { pair, q, mu, direction, delta, left, theta, width, max_points };
    search.bracket(width, known_lower)
}

impl Search {
    /// Returns the bracket from contours for better and better guesses of ε.
    fn bracket(mut self, requested: f64, known_lower: f64) -> Option<Bracket> {
        let tail = 1e-8 * self.delta / self.releases();
        let saddle = Cumulants::new(&self.pair, self.direction, tail).saddle(self.delta)?;
        self.theta = saddle.theta;
        let guess = saddle.epsilon.max(1e-2 * saddle.variance.sqrt());
        // The other direction decides as soon as δ there is below the target.
        let mut epsilon = if known_lower > 0.0 { known_lower } else { guess };
        self.width = aim(&self.pair, requested, epsilon);
        let (mut smoothing, mut least_smoothing) = (FIRST_SMOOTHING, 0.0);
        let mut best = Bracket::unknown();
        let mut contours = CONTOURS;
        while contours > 0 {
            contours -= 1;
            let Some((lower, upper)) = self.bounds(epsilon, smoothing) else {
                // More smoothing needs fewer moments.
                if smoothing >= MOST_SMOOTHING {
                    break;
                }
                least_smoothing = 1.5 * smoothing;
                smoothing = (10.0 * smoothing).min(MOST_SMOOTHING);
                continue;
            };
            best.narrow(lower, upper);
            if best.contradicts || best.is_within(self.width, known_lower) {
                return Some(best);
            }
            if best.is_within(requested, known_lower) {
                contours = contours.min(FURTHER_CONTOURS);
            }
            if smoothing < LEAST_SMOOTHING {
                break;
            } else if best.upper.is_infinite() {
                epsilon = 3.0 * epsilon.max(best.lower);
            } else if best.lower > 0.3 * best.upper {
                epsilon = 0.5 * (best.lower + best.upper);
                if lower > 0.0 && upper.is_finite() {
                    smoothing *= (0.3 * self.width * upper / (upper - lower)).clamp(1e-2, 0.5);
                    smoothing = smoothing.max(least_smoothing);
                }
            } else {
                epsilon = (best.lower * best.upper).sqrt().max(0.1 * best.upper);
            }
        }
        let is_wide = !best.is_within(requested, known_lower);
        best.note = is_wide.then(|| "the moments decay too slowly".to_string());
        Some(best)
    }

    /// Returns the number of releases.
    fn releases(&self) -> f64 {
        self.pair[0].1 as f64
    }

    /// Returns a lower and an upper bound of ε from a contour for about this ε. Its smoothing moves
    /// ε by about the share `smoothing` of the requested width.
    fn bounds(&self, epsilon: f64, smoothing: f64) -> Option<(f64, f64)> {
        let tolerated = TOLERATED * self.width;
        // The lower the cut, the better the moments.
        let share = (OMITTED * self.width * (self.theta * epsilon).clamp(1e-9, 10.0)).min(0.5);
        let Kept { cut, rare, omitted } = self.kept(RANGE * epsilon, share * self.left)?;
        let mut cumulants = Cumulants::below(&self.pair, self.direction, cut);
        if !cumulants.are_exact() {
            return None;
        }
        let (saddle, _) = cumulants.saddle_at(epsilon)?;
        // Near ε = 0, a small share of δ is a large part of ε.
        let ln_relative = (tolerated * (saddle.theta * epsilon).clamp(1e-9, 1.0)).ln();
        let aim = Target { theta: saddle.theta, epsilon, delta: self.delta, ln_relative };
        let aim = cumulants.cheapest_tilt(aim);
        // Smoothing by a variance v moves δ by up to v times the density there, which is about
        // θ times δ, as long as v is small.
        let variance = (smoothing * self.width * epsilon / saddle.theta).min(1.0);
        let smoothed = |t: f64| 0.5 * variance * t * (t + 1.0);
        let (ln_total, _, spread) = cumulants.at(aim.theta);
        let deviation = (spread + variance).sqrt();
        let contour = Contour::new(aim, deviation, |t| cumulants.at(t).0 + smoothed(t))?;
        let Contour { theta, period, fall, rise, allowed } = contour;
        let tail = Tail::above(&self.pair[0].0, self.direction, cut)?;
        let end = tail.end().map(|end| (end, tail.mass + tail.excess));
        let release = KeptRelease { q: self.q, mu: self.mu, direction: self.direction, cut: end };
        let truncated = |frequency: f64| {
            let decay = release.decay(theta, ln_total / self.releases(), frequency);
            ln_truncated(theta, variance, frequency) - self.releases() * decay
        };
        // What remains of the sum is a tenth of the aliases.
        let frequency = root(period, |f| truncated(f) > allowed.ln() + smoothed(theta) - 2.3);
        let count = (frequency * period / TAU).ceil();
        let points = count * TAU / RESOLUTION;
        if points.is_nan() || points > self.max_points as f64 {
            return None;
        }
        let size = fast_size(points.max(1024.0) as usize);
        let moments = Moments::new(&release, theta, period, count as usize, size)?;
        let last = count * TAU / period;
        let decay = release.decay(theta, moments.ln_total + moments.ln_total_error, last);
        let ln_moment = |t: f64| {
            let bound = release.ln_moment_bound(t);
            bound.map(|ln_moment| self.releases() * ln_moment * (1.0 + 1e-15))
        };
        let plan = Plan {
            contour,
            variance,
            ln_truncated: ln_truncated(theta, variance, last) - self.releases() * decay,
            ln_moments: (ln_moment(theta - fall)?, ln_moment(theta + rise)?),
        };
        let sums = Smoothed::new(&moments, &plan, self.pair[0].1);
        let delta = |epsilon: f64| {
            let (lower, upper) = sums.delta(epsilon);
            let (rare, slope) = rare.map_or((0.0, 0.0), |rare| rare.delta(epsilon));
            let error = 1e-12 * (rare.abs() + slope);
            (lower + rare - error, upper + rare + error + omitted)
        };
        let most = RANGE * epsilon;
        let lower = self.crossing(epsilon, most, |e| delta(e).0 >= self.delta).0;
        let is_above = |e: f64| {
            let upper = delta(e).1;
            upper.is_nan() || upper > self.left
        };
        let upper = self.crossing(epsilon, most, is_above).1;
        Some((lower.unwrap_or(0.0), upper.unwrap_or(f64::INFINITY)))
    }

    /// Returns the largest known ε up to `most` where δ is above, and the smallest known where it
    /// is not; `None` if there is none.
    fn crossing(
        &self,
        start: f64,
        most: f64,
        is_above: impl Fn(f64) -> bool,
    ) -> (Option<f64>, Option<f64>) {
        let up = is_above(start);
        let (mut at, mut step) = (start, 1e-4 * start);
        loop {
            let next = if up { (at + step).min(most) } else { (at - step).max(0.0) };
            if is_above(next) != up {
                let (mut low, mut high) = (at.min(next), at.max(next));
                while high - low > 1e-3 * self.width * high {
                    let middle = 0.5 * (low + high);
                    if middle <= low || middle >= high {
                        break;
                    }
                    if is_above(middle) { low = middle } else { high = middle }
                }
                return (Some(low), Some(high));
            }
            (at, step) = (next, 4.0 * step);
            if at == most || at == 0.0 {
                return if up { (Some(at), None) } else { (None, Some(at)) };
            }
        }
    }

    /// Returns the losses to keep so that at most `allowed` of δ is omitted at every ε up to this.
    fn kept(&self, epsilon: f64, allowed: f64) -> Option<Kept> {
        if self.direction == Direction::Add {
            // All losses are below this.
            return Some(Kept { cut: -1.01 * (-self.q).ln_1p(), rare: None, omitted: 0.0 });
        }
        if epsilon > LARGEST_EPSILON {
            let end = self.mu - normal::quantile(0.5 * allowed / self.releases());
            return Some(Kept {
                cut: ln_mixture(self.q, self.mu, end),
                rare: None,
                omitted: allowed,
            });
        }
        // The bulk of the losses.
        let deviation = Cumulants::new(&self.pair, Direction::Add, 1e-3).at(1.0).2.sqrt();
        let mut distance = 3.0 * deviation;
        for _ in 0..60 {
            let cut = epsilon + distance;
            let omitted = omitted_delta(&self.pair, self.direction, epsilon, cut);
            if let Some(omitted) = omitted.filter(|omitted| *omitted <= allowed) {
                let rare = Some(RareLosses::above(&self.pair, self.direction, cut)?);
                return Some(Kept { cut, rare, omitted: omitted * (1.0 + 1e-6) });
            }
            distance *= 1.2;
        }
        None
    }
}

/// Returns the frequency from which on a falling function is false.
fn root(period: f64, is_above: impl Fn(f64) -> bool) -> f64 {
    let mut high = TAU / period;
    while is_above(high) && high < 1e300 {
        high *= 2.0;
    }
    let mut low = 0.5 * high;
    for _ in 0..8 {
        let middle = 0.5 * (low + high);
        if is_above(middle) { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::math::gaussian_dp::gaussian_epsilon;

    fn bracket(q: f64, sigma: f64, count: u64, direction: Direction, delta: f64) -> Bracket {
        let parts = [(Pair::Sampled { q, mu: 1.0 / sigma }, count)];
        epsilon(&parts, direction, (delta, delta), 1e-4, 1 << 22, 0.0).unwrap()
    }

    #[test]
    fn brackets_of_any_width_enclose_the_inversion_in_quadruple_precision() {
        // scripts/reference_quadruple.c, with several tilts and periods.
        use Direction::{Add, Remove};
        for (q, sigma, count, direction, delta, truth) in [
            (1e-4, 0.6, 1_000, Remove, 1e-8, 0.908_720_323_132_15),
            (0.01, 1.0, 100, Remove, 1e-6, 0.954_217_073_617_103_8),
            (0.01, 1.0, 100, Add, 1e-6, 0.379_460_873_596_686),
            (0.2, 2.0, 20, Remove, 1e-7, 2.902_248_773_079_532),
            (0.2, 2.0, 20, Add, 1e-7, 1.786_230_505_953_962),
        ] {
            for width in [1e-3, 1e-4, 1e-5, 1e-6] {
                let parts = [(Pair::Sampled { q, mu: 1.0 / sigma }, count)];
                let found =
                    epsilon(&parts, direction, (delta, delta), width, 1 << 22, 0.0).unwrap();
                let context = format!("{q} {sigma} {count} {direction:?} {width}: {found:?}");
                assert!(found.lower <= truth && truth <= found.upper, "{context}");
                assert!(found.upper - found.lower <= width * truth, "{context}");
            }
        }
    }

    fn check(found: &Bracket, truth: f64, error: f64, context: &str) {
        let is_inside = found.lower <= truth + error && truth - error <= found.upper;
        assert!(is_inside && found.note.is_none(), "{context}: {found:?} {truth}");
        assert!(found.upper - found.lower <= 1e-4 * found.upper, "{context}: {found:?}");
    }

    #[test]
    fn one_release_has_its_closed_form() {
        for (q, sigma, delta) in [(0.01, 1.0, 1e-6), (0.3, 4.0, 1e-3), (1e-4, 0.5, 1e-9)] {
            let found = bracket(q, sigma, 1, Direction::Remove, delta);
            let truth = (q * gaussian_epsilon(1.0 / sigma, delta / q).exp_m1()).ln_1p();
            check(&found, truth, 1e-12 * truth, &format!("{q} {sigma}"));
        }
    }

    #[test]
    fn compositions_have_their_golden_epsilon() {
        // epsilon_poisson.json, rows p000, p041 and p077.
        for (q, sigma, count, delta, truth, error) in [
            (256.0 / 60_000.0, 1.1, 14_062, 1e-5, 2.38159692148991, 1e-9),
            (1e-4, 0.8, 5_000, 1e-9, 0.21483416107249434, 5e-8),
            (1e-5, 1.0, 1_000, 1e-9, 0.00241620762339, 1e-13),
        ] {
            let found = bracket(q, sigma, count, Direction::Remove, delta);
            check(&found, truth, error, &format!("{q} {sigma} {count}"));
        }
        let add = bracket(256.0 / 60_000.0, 1.1, 14_062, Direction::Add, 1e-5);
        check(&add, 2.243559372698958, 1e-9, "add");
    }

    #[test]
    fn losses_that_no_grid_resolves_have_a_narrow_bracket() {
        // The width of the bulk, the rare losses and ε are orders of magnitude apart. The
        // references are the brackets of lattices of four million points and repeated squaring.
        for (q, sigma, count, delta, low, high) in [
            (
                3.127713825262976e-7,
                0.7173443014664957,
                5_179,
                2.1718398375866032e-5,
                1.4765e-7,
                1.4784e-7,
            ),
            (
                3.6375330552952956e-7,
                5.587459821318632,
                24_128,
                4.06124758557687e-6,
                1.1057e-8,
                1.1078e-8,
            ),
            (
                7.382969528498275e-7,
                0.29880753374459273,
                108_308,
                7.381280797978967e-3,
                4.588e-4,
                4.652e-4,
            ),
        ] {
            let found = bracket(q, sigma, count, Direction::Remove, delta);
            let is_narrow = found.upper - found.lower <= 1e-4 * found.upper;
            assert!(is_narrow && found.lower >= low && found.upper <= high, "{q}: {found:?}");
        }
    }

    #[test]
    fn other_parts_and_extreme_losses_are_left_to_the_grids() {
        let pair = Pair::Sampled { q: 0.1, mu: 1.0 };
        for parts in [
            vec![(Pair::Gaussian { mu: 1.0 }, 3)],
            vec![(pair.clone(), 3), (pair, 4)],
            vec![(Pair::Sampled { q: 0.1, mu: 30.0 }, 3)],
        ] {
            let found = epsilon(&parts, Direction::Remove, (1e-6, 1e-6), 1e-4, 1 << 22, 0.0);
            assert!(found.is_none(), "{found:?}");
        }
        // A loss of more than 150.
        let extreme = bracket(0.5, 0.06, 1_000, Direction::Remove, 1e-9);
        assert!(extreme.note.is_some() && extreme.upper.is_infinite(), "{extreme:?}");
    }
}
