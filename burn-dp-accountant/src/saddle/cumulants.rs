//! Cumulants of the privacy loss of a composition, and saddle points of the inversion integral.

use std::f64::consts::PI;

use super::contour::{Contour, Target};
use super::source::{CumulantSource, Limit, Rules};
use crate::dominating_pairs::{Direction, Pair};
use crate::lattice;
use crate::math::normal;

/// Grid points for the cumulants of a pair without an analytic rule. Such cumulants only guide the
/// search; they do not enter the result.
const COARSE_POINTS: f64 = 6000.0;

/// Logarithm of the largest tilt, and of the inverse of the smallest, that are tried.
const LARGEST_LN_TILT: f64 = 40.0;

/// `K(θ) = ln E_P[e^{θY}]` of a composition in one direction.
///
/// Losses of probability below a given tail are omitted: with small sampling probabilities they
/// would dominate a large tilt although they practically never occur.
pub(crate) struct Cumulants {
    parts: Vec<(CumulantSource, f64)>,
    limit: Limit,
}

/// The saddle point for one δ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saddle {
    /// Real part of the contour.
    pub(crate) theta: f64,
    /// Saddle-point approximation of ε; it may be negative.
    pub(crate) epsilon: f64,
    /// `K''(theta)`: variance of the tilted loss.
    pub(crate) variance: f64,
}

impl Cumulants {
    /// Creates the cumulants without losses of probability below `tail`.
    pub(crate) fn new(parts: &[(Pair, u64)], direction: Direction, tail: f64) -> Self {
        Self::limited(parts, direction, Limit::Reach(-normal::quantile(tail)), tail)
    }

    /// Creates the cumulants without the losses above `cut`, regardless of their probability. It is
    /// for pairs with analytic losses and a cut that keeps the frequent losses.
    pub(crate) fn below(parts: &[(Pair, u64)], direction: Direction, cut: f64) -> Self {
        Self::limited(parts, direction, Limit::Cut(cut), 1e-300)
    }

    fn limited(parts: &[(Pair, u64)], direction: Direction, limit: Limit, tail: f64) -> Self {
        let source = |pair: &Pair| match *pair {
            Pair::Gaussian { mu } => CumulantSource::Gaussian { mu },
            _ => match limit.nodes(pair, direction, 64.0) {
                Some(nodes) => {
                    let rules = Rules::new(64.0, nodes);
                    CumulantSource::Nodes { pair: pair.clone(), direction, rules }
                }
                None => {
                    let span = lattice::span(pair, direction, 1.0, tail) - 4.0;
                    let width = span.max(1e-9) / COARSE_POINTS;
                    CumulantSource::Discrete {
                        points: lattice::points(pair, direction, width, tail),
                    }
                }
            },
        };
        Self { parts: parts.iter().map(|(pair, n)| (source(pair), *n as f64)).collect(), limit }
    }

    /// Returns `K`, `K'` and `K''` at `theta > 0`. Not finite if the rule is too short.
    pub(crate) fn at(&mut self, theta: f64) -> (f64, f64, f64) {
        let mut total = (0.0, 0.0, 0.0);
        for (source, count) in &mut self.parts {
            let one = source.at(theta, self.limit);
            total.0 += *count * one.0;
            total.1 += *count * one.1;
            total.2 += *count * one.2;
        }
        total
    }

    /// Returns the saddle-point approximation `(ε, ln δ)` at `theta` (Alghamdi et al. 2023, section
    /// 4), and `K''`.
    fn approximation(&mut self, theta: f64) -> (f64, f64, f64) {
        let (value, mean, variance) = self.at(theta);
        let epsilon = mean - 1.0 / theta - 1.0 / (theta + 1.0);
        let curvature = variance + theta.powi(-2) + (theta + 1.0).powi(-2);
        let ln_delta = value
            - theta * epsilon
            - theta.ln()
            - theta.ln_1p()
            - 0.5 * (2.0 * PI * curvature).ln();
        (epsilon, ln_delta, variance)
    }

    /// Returns the saddle point for a target δ, by bisection and secant steps on `ln θ`. `None` if
    /// there is no finite saddle point.
    pub(crate) fn saddle(&mut self, delta: f64) -> Option<Saddle> {
        let target = delta.ln();
        let mut value = |t: f64| {
            let (_, ln_delta, _) = self.approximation(t.exp());
            if ln_delta.is_nan() { f64::NEG_INFINITY } else { ln_delta - target }
        };
        let (mut low, mut high) = (0.0, 0.0);
        let mut at = value(0.0);
        let (mut value_low, mut value_high) = (at, at);
        while value_low < 0.0 {
            (high, value_high) = (low, value_low);
            low -= 1.5;
            if low < -LARGEST_LN_TILT {
                return None;
            }
            value_low = value(low);
        }
        at = value_high;
        while at >= 0.0 {
            (low, value_low) = (high, at);
            high += 1.5;
            if high > LARGEST_LN_TILT {
                return None;
            }
            at = value(high);
            value_high = at;
        }
        for iteration in 0..40 {
            let mut middle = if iteration % 3 == 2 || !value_high.is_finite() {
                0.5 * (low + high)
            } else {
                (low * value_high - high * value_low) / (value_high - value_low)
            };
            if !(middle > low && middle < high) {
                middle = 0.5 * (low + high);
            }
            let v = value(middle);
            if v >= 0.0 {
                (low, value_low) = (middle, v);
            } else {
                (high, value_high) = (middle, v);
            }
            if high - low < 1e-3 || v.abs() < 1e-2 {
                low = middle;
                break;
            }
        }
        let theta = low.exp();
        let (epsilon, ln_delta, variance) = self.approximation(theta);
        (ln_delta.is_finite() && epsilon.is_finite()).then_some(Saddle { theta, epsilon, variance })
    }

    /// Returns whether the tails of the tilted distribution are about as light as the tails of a
    /// Gaussian of its variance, by Chernoff's bound at one further tilt.
    pub(crate) fn has_light_tails(&mut self, theta: f64) -> bool {
        let (value, mean, variance) = self.at(theta);
        let deviation = variance.sqrt();
        let (further, _, _) = self.at(theta + 8.0 / deviation);
        (further - value + 32.0) * deviation / 8.0 - mean < 10.0 * deviation
    }

    /// Returns the target with the tilt of the shortest period: its own tilt, or a smaller one as
    /// long as the masses that determine δ are far above rounding. (With small sampling
    /// probabilities a few rare losses dominate a strongly tilted distribution.)
    pub(crate) fn cheapest_tilt(&mut self, target: Target) -> Target {
        // Rounding of the transform grows with the number of releases; δ is kept 1e5 times above
        // it.
        let releases: f64 = self.parts.iter().map(|(_, n)| n).sum();
        let mut smallest = f64::NEG_INFINITY;
        let mut best = (f64::INFINITY, target);
        for k in 0..20 {
            let candidate = Target { theta: target.theta * 0.85f64.powi(k), ..target };
            let (value, _, variance) = self.at(candidate.theta);
            let size = candidate.ln_scaled(value);
            if !size.is_finite() {
                continue;
            }
            if smallest == f64::NEG_INFINITY {
                smallest = (size - 0.5).min((4e-8 * releases).ln());
            }
            if size < smallest {
                break;
            }
            let contour = Contour::new(candidate, variance.sqrt(), |t| self.at(t).0);
            let period = contour.map_or(f64::INFINITY, |c| c.period);
            if period > 1.5 * best.0 {
                break;
            }
            if period < best.0 {
                best = (period, candidate);
            }
        }
        best.1
    }

    /// Returns whether the cumulants come from the densities, and not from points that only guide
    /// the search.
    pub(crate) fn are_exact(&self) -> bool {
        !self.parts.iter().any(|(source, _)| matches!(source, CumulantSource::Discrete { .. }))
    }

    /// Returns Chernoff's bound `(K(θ) + ln max_u e^{-θu}(1-e^{-u}) - ln δ)/θ`: an upper bound of ε
    /// at `delta` for every `theta`.
    pub(crate) fn chernoff(&mut self, theta: f64, delta: f64) -> f64 {
        let (value, _, _) = self.at(theta);
        let ln_weight = theta * (theta / (theta + 1.0)).ln() - theta.ln_1p();
        let bound = (value * (1.0 + 1e-9) + ln_weight - delta.ln()) / theta;
        if bound.is_nan() { f64::INFINITY } else { bound }
    }

    /// Returns the saddle point for a given ε, with the approximation of `ln δ`.
    pub(crate) fn saddle_at(&mut self, epsilon: f64) -> Option<(Saddle, f64)> {
        // ε(θ) increases. Rules for needlessly large tilts have many nodes, so the search starts in
        // the middle.
        let mut is_below = |ln_theta: f64| {
            let (value, _, _) = self.approximation(ln_theta.exp());
            value.is_finite() && value < epsilon
        };
        let (mut low, mut high): (f64, f64) = (0.0, 0.0);
        if is_below(0.0) {
            high = 1.5;
            while high < LARGEST_LN_TILT && is_below(high) {
                (low, high) = (high, high + 1.5);
            }
        } else {
            low = -1.5;
            while low > -LARGEST_LN_TILT && !is_below(low) {
                (low, high) = (low - 1.5, low);
            }
        }
        while high - low > 1e-3 {
            let middle = 0.5 * (low + high);
            if is_below(middle) { low = middle } else { high = middle }
        }
        let theta = low.exp();
        let (value, ln_delta, variance) = self.approximation(theta);
        let saddle = Saddle { theta, epsilon: value.max(epsilon), variance };
        (ln_delta.is_finite() && value.is_finite()).then_some((saddle, ln_delta))
    }
}
