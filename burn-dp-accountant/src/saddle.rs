//! Cumulants of the privacy loss and the saddle point of the inversion integral.

use std::f64::consts::PI;

use crate::math::normal;
use crate::mechanism::{Direction, Nodes, Pair, Tail};
use crate::pld::{self, Contour, Target};

/// Points of the grid on which the cumulants of a pair without an analytic rule are computed. They
/// only choose where to look, never what is reported.
const COARSE_POINTS: f64 = 6000.0;

/// `K(θ) = ln E_P[e^{θY}]` of a composition in one direction.
///
/// Losses of probability below the given tail are left out (see [`Nodes::truncated`]): with small
/// sampling probabilities a large tilt would otherwise be decided by events that never happen.
pub(crate) struct Cumulants {
    parts: Vec<(Source, f64)>,
    limit: Limit,
}

/// Which losses take part.
#[derive(Clone, Copy)]
enum Limit {
    /// Those of outcomes up to so many standard deviations beyond the mean.
    Reach(f64),
    /// Those up to this one.
    Cut(f64),
}

impl Limit {
    fn nodes(self, pair: &Pair, direction: Direction, order: f64) -> Option<Nodes> {
        match self {
            Self::Reach(reach) => {
                let nodes = Nodes::new(pair, direction, order, 0.0)?;
                Some(nodes.truncated(pair, direction, reach))
            }
            // A larger tilt is not that of a loss anywhere below the cut.
            Self::Cut(cut) if order * cut > 1e4 => None,
            Self::Cut(cut) => {
                let tail = Tail::above(pair, direction, cut)?;
                Nodes::within(pair, direction, order, 0.0, &tail)
            }
        }
    }
}

enum Source {
    Gaussian { mu: f64 },
    Nodes { pair: Pair, direction: Direction, nodes: Nodes, order: f64 },
    Discrete { points: Vec<(f64, f64)> },
}

/// The saddle point for one δ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saddle {
    /// Real part of the contour.
    pub(crate) theta: f64,
    /// Saddle-point approximation of ε; may be negative.
    pub(crate) epsilon: f64,
    /// `K''` there: variance of the tilted loss.
    pub(crate) variance: f64,
}

impl Cumulants {
    pub(crate) fn new(parts: &[(Pair, u64)], direction: Direction, tail: f64) -> Self {
        Self::limited(parts, direction, Limit::Reach(-normal::quantile(tail)), tail)
    }

    /// Without the losses above `cut`, whatever their probability. For pairs with analytic losses of which
    /// the cut leaves the frequent ones.
    pub(crate) fn below(parts: &[(Pair, u64)], direction: Direction, cut: f64) -> Self {
        Self::limited(parts, direction, Limit::Cut(cut), 1e-300)
    }

    fn limited(parts: &[(Pair, u64)], direction: Direction, limit: Limit, tail: f64) -> Self {
        let source = |pair: &Pair| match *pair {
            Pair::Gaussian { mu } => Source::Gaussian { mu },
            _ => match limit.nodes(pair, direction, 64.0) {
                Some(nodes) => Source::Nodes { pair: pair.clone(), direction, nodes, order: 64.0 },
                None => {
                    let span = pld::span(pair, direction, 1.0, tail) - 4.0;
                    let width = span.max(1e-9) / COARSE_POINTS;
                    Source::Discrete { points: pld::points(pair, direction, width, tail) }
                }
            },
        };
        Self { parts: parts.iter().map(|(pair, n)| (source(pair), *n as f64)).collect(), limit }
    }

    /// `K`, `K'` and `K''` at `theta > 0`. Not finite where the rule does not reach.
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

    /// Saddle-point approximation `(ε, ln δ)` at `theta` (Alghamdi et al. 2023, section 4).
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

    /// The saddle for a target δ, by bisection and secant steps on `ln θ`. `None` if no finite
    /// saddle is found.
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
            if low < -40.0 {
                return None;
            }
            value_low = value(low);
        }
        at = value_high;
        while at >= 0.0 {
            (low, value_low) = (high, at);
            high += 1.5;
            if high > 40.0 {
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

    /// Whether the tilted distribution reaches hardly further than a Gaussian of its variance, by
    /// Chernoff's bound at one further tilt.
    pub(crate) fn has_light_tails(&mut self, theta: f64) -> bool {
        let (value, mean, variance) = self.at(theta);
        let deviation = variance.sqrt();
        let (further, _, _) = self.at(theta + 8.0 / deviation);
        (further - value + 32.0) * deviation / 8.0 - mean < 10.0 * deviation
    }

    /// The tilt with the shortest period of the aliases: that of the target, or a smaller one while the
    /// masses that decide δ are still far above rounding. (With small sampling probabilities a few rare
    /// losses dominate a strongly tilted distribution.)
    pub(crate) fn cheapest_tilt(&mut self, target: Target) -> Target {
        // Rounding of the transform grows with the number of releases; δ shall be 1e5 times above.
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

    /// Chernoff's bound of ε at `delta`: `(K(θ) + ln max_u e^{-θu}(1-e^{-u}) - ln δ)/θ`. An upper
    /// bound for every `theta`.
    pub(crate) fn chernoff(&mut self, theta: f64, delta: f64) -> f64 {
        let (value, _, _) = self.at(theta);
        let ln_weight = theta * (theta / (theta + 1.0)).ln() - theta.ln_1p();
        let bound = (value * (1.0 + 1e-9) + ln_weight - delta.ln()) / theta;
        if bound.is_nan() { f64::INFINITY } else { bound }
    }

    /// The saddle for a given ε, with the approximation of `ln δ` there.
    pub(crate) fn saddle_at(&mut self, epsilon: f64) -> Option<(Saddle, f64)> {
        let (mut low, mut high) = (-40.0f64, 40.0f64);
        // ε(θ) increases.
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            let (value, _, _) = self.approximation(middle.exp());
            if value.is_finite() && value < epsilon {
                low = middle
            } else {
                high = middle
            }
            if high - low < 1e-3 {
                break;
            }
        }
        let theta = low.exp();
        let (value, ln_delta, variance) = self.approximation(theta);
        let saddle = Saddle { theta, epsilon: value.max(epsilon), variance };
        (ln_delta.is_finite() && value.is_finite()).then_some((saddle, ln_delta))
    }
}

impl Source {
    fn at(&mut self, theta: f64, limit: Limit) -> (f64, f64, f64) {
        match self {
            Self::Gaussian { mu } => {
                let variance = *mu * *mu;
                (0.5 * theta * (theta + 1.0) * variance, (theta + 0.5) * variance, variance)
            }
            Self::Nodes { pair, direction, nodes, order } => {
                let wanted = theta + 1.0;
                if wanted > *order || wanted < 0.1 * *order {
                    match limit.nodes(pair, *direction, 2.0 * wanted) {
                        Some(rule) => {
                            *nodes = rule;
                            *order = 2.0 * wanted;
                        }
                        None if wanted > *order => return (f64::NAN, f64::NAN, f64::NAN),
                        None => {}
                    }
                }
                nodes.cumulants(theta)
            }
            Self::Discrete { points } => {
                let peak =
                    points.iter().fold(f64::NEG_INFINITY, |m, (y, ln_p)| m.max(ln_p + theta * y));
                let (mut zeroth, mut first, mut second) = (0.0, 0.0, 0.0);
                for (y, ln_p) in points.iter() {
                    let mass = (ln_p + theta * y - peak).exp();
                    zeroth += mass;
                    first += mass * y;
                    second += mass * y * y;
                }
                let mean = first / zeroth;
                (peak + zeroth.ln(), mean, (second / zeroth - mean * mean).max(0.0))
            }
        }
    }
}
