//! Nodes and weights of the trapezoidal rule under `Q`, for moments of the likelihood ratio.
//!
//! `E_Q[L^a] - 1 = E_Q[L^a - 1 - a(L - 1)]`, because `E_Q[L] = 1`; the integrand on the right is not
//! negative for real `a >= 1`, so that nothing cancels however small the sampling probability is.
//! The integrands are analytic in a strip around the real line and fall like a Gaussian, hence the
//! trapezoidal rule converges geometrically (Trefethen and Weideman 2014, Theorem 5.1).

use super::{Pair, Tail};
use crate::math::normal::LN_DENSITY_AT_ZERO;
use crate::math::{exp_minus_tangent, ln_add_exp};

/// Which of the two neighbours is `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `P` is the data set with the unit.
    Remove,
    /// `P` is the data set without the unit.
    Add,
}

/// Logarithm of the density of `Q` and the privacy loss `ln dP/dQ` at a point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) ln_q: f64,
    pub(crate) loss: f64,
}

/// `ln(1 - q + q e^{μx - μ²/2})`, accurate for tiny `q` and free of overflow.
pub(crate) fn ln_mixture(q: f64, mu: f64, x: f64) -> f64 {
    let exponent = mu * x - 0.5 * mu * mu;
    if exponent > 30.0 {
        ln_add_exp((-q).ln_1p(), q.ln() + exponent)
    } else {
        (q * exponent.exp_m1()).ln_1p()
    }
}

/// Density and loss at `x` of a pair with Gaussian noise; `None` for the pairs whose moments have
/// closed forms or whose loss is not analytic.
pub(crate) fn point(pair: &Pair, direction: Direction, x: f64) -> Option<Point> {
    let ln_phi = LN_DENSITY_AT_ZERO - 0.5 * x * x;
    match *pair {
        Pair::Sampled { q, mu } => {
            let mixture = ln_mixture(q, mu, x);
            Some(match direction {
                Direction::Remove => Point { ln_q: ln_phi, loss: mixture },
                Direction::Add => Point { ln_q: ln_phi + mixture, loss: -mixture },
            })
        }
        Pair::Substituted { q, mu } => {
            let below = ln_mixture(q, mu, -x);
            Some(Point { ln_q: ln_phi + below, loss: ln_mixture(q, mu, x) - below })
        }
        _ => None,
    }
}

/// The rule for one pair and direction, good for moments of order up to the one it was made for.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    ln_weight: Vec<f64>,
    weight: Vec<f64>,
    loss: Vec<f64>,
    /// What the nodes leave out.
    tail: Tail,
}

/// Beyond this exponent the subtraction of the first terms is below the rounding.
pub(super) const LARGEST_EXPONENT: f64 = 300.0;

/// More nodes than this are never needed for an answer that is better than the closed bounds.
const MAX_NODES: f64 = 60_000.0;

impl Nodes {
    /// The rule for moments `E_Q[L^a]` with `1 <= Re a <= order` and `|Im a| <= frequency`.
    /// `None` if the pair has no such rule or the rule would be too long.
    pub(crate) fn new(
        pair: &Pair,
        direction: Direction,
        order: f64,
        frequency: f64,
    ) -> Option<Self> {
        let mu = match *pair {
            Pair::Sampled { mu, .. } | Pair::Substituted { mu, .. } => mu,
            _ => return None,
        };
        // Half-width of the strip without singularities (1 - q + q L = 0), capped because the
        // Gaussian grows along the imaginary axis.
        let strip = (0.85 * std::f64::consts::PI / mu).min(6.0);
        let reach = order * mu + 13.5;
        let log_integrand = |x: f64| {
            point(pair, direction, x).map_or(f64::NEG_INFINITY, |p| p.ln_q + order * p.loss)
        };
        // Everything within e^-90 of the largest value, for the largest order and for the first.
        let coarse = 0.5;
        if reach / coarse > MAX_NODES {
            return None;
        }
        let count = (2.0 * reach / coarse).ceil() as i64;
        let mut peak = f64::NEG_INFINITY;
        let samples: Vec<(f64, f64)> = (0..=count)
            .map(|k| {
                let x = -reach + coarse * k as f64;
                let value = log_integrand(x);
                peak = peak.max(value);
                (x, value)
            })
            .collect();
        let relevant = |&&(x, value): &&(f64, f64)| value > peak - 90.0 || x.abs() <= 13.0;
        let low = samples.iter().find(relevant).map_or(-13.5, |s| s.0) - coarse;
        let high = samples.iter().rev().find(relevant).map_or(13.5, |s| s.0) + coarse;
        // e^{it y} grows off the real line by t times the argument of 1 - q + qL, which is at most
        // about μ d times the share of qL, at the end of what matters to double precision.
        let matters = |&&(x, value): &&(f64, f64)| value > peak - 55.0 || x.abs() <= 9.0;
        let end = samples.iter().rev().find(matters).map_or(reach, |s| s.0);
        let share = match *pair {
            Pair::Sampled { q, mu } => {
                let mixed = ln_mixture(q, mu, end);
                (q.ln() + mu * end - 0.5 * mu * mu - mixed).exp().min(1.0)
            }
            _ => 1.0,
        };
        let step = 2.0 * std::f64::consts::PI * strip
            / (46.0 + 0.5 * strip * strip + 2.0 * frequency * mu * share * strip);
        if (high - low) / step > 2.0 * MAX_NODES {
            return None;
        }
        let mut nodes = Self::from_points(Vec::new(), Tail::NONE);
        let first = (low / step).floor() as i64;
        let last = (high / step).ceil() as i64;
        for k in first..=last {
            if let Some(p) = point(pair, direction, step * k as f64) {
                let ln_weight = p.ln_q + step.ln();
                if ln_weight > peak.min(0.0) - 100.0 || ln_weight + order * p.loss > peak - 100.0 {
                    nodes.ln_weight.push(ln_weight);
                    nodes.weight.push(ln_weight.exp());
                    nodes.loss.push(p.loss);
                }
            }
        }
        Some(nodes)
    }

    pub(super) fn len(&self) -> usize {
        self.loss.len()
    }

    /// The rule of `(ln w, loss)` for all outcomes but those of `tail`.
    pub(super) fn from_points(points: Vec<(f64, f64)>, tail: Tail) -> Self {
        let (ln_weight, loss): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
        let weight = ln_weight.iter().map(|w: &f64| w.exp()).collect();
        Self { ln_weight, weight, loss, tail }
    }

    /// `P(B) - Q(B)` of the outcomes that are left out.
    pub(super) fn excess_left_out(&self) -> f64 {
        self.tail.excess
    }

    pub(super) fn peak(&self, order: f64) -> f64 {
        let exponents = self.ln_weight.iter().zip(&self.loss).map(|(w, y)| w + order * y);
        exponents.fold(f64::NEG_INFINITY, f64::max)
    }

    /// `ln E_Q[L^order]` for real `order > 1`. With a tail `B` left out, `E_Q[L^a] - 1` is
    /// `E_Q[L^a - 1 - a(L - 1)] - Q(B) - a(P(B) - Q(B))`.
    pub(crate) fn ln_moment(&self, order: f64) -> f64 {
        let peak = self.peak(order);
        if peak < LARGEST_EXPONENT {
            let sum: f64 = self
                .nodes()
                .map(|(ln_weight, weight, y)| {
                    if order * y < LARGEST_EXPONENT {
                        weight * (exp_minus_tangent(order * y) - order * exp_minus_tangent(y))
                    } else {
                        (ln_weight + order * y).exp()
                    }
                })
                .sum();
            return (sum - self.tail.mass - order * self.tail.excess).ln_1p();
        }
        let terms = self.ln_weight.iter().zip(&self.loss);
        peak + terms.map(|(w, y)| (w + order * y - peak).exp()).sum::<f64>().ln()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let weights = self.ln_weight.iter().zip(&self.weight);
        weights.zip(&self.loss).map(|((&ln_weight, &weight), &y)| (ln_weight, weight, y))
    }

    /// `K(θ) = ln E_Q[L^{θ+1}]` with its first and second derivative.
    pub(crate) fn cumulants(&self, theta: f64) -> (f64, f64, f64) {
        let order = theta + 1.0;
        let peak = self.peak(order);
        let (mut zeroth, mut first, mut second) = (0.0, 0.0, 0.0);
        for (w, &y) in self.ln_weight.iter().zip(&self.loss) {
            let mass = (w + order * y - peak).exp();
            zeroth += mass;
            first += mass * y;
            second += mass * y * y;
        }
        let mean = first / zeroth;
        (self.ln_moment(order), mean, (second / zeroth - mean * mean).max(0.0))
    }

    /// Leaves out what lies more than `reach` beyond the means of `P`: events so rare that δ does not
    /// see them, however much a large tilt would.
    pub(crate) fn truncated(mut self, pair: &Pair, direction: Direction, reach: f64) -> Self {
        let (Pair::Sampled { mu, .. } | Pair::Substituted { mu, .. }) = *pair else { return self };
        // A symmetric pair has its largest losses on the same side in both directions.
        let below = direction == Direction::Add && !pair.is_symmetric();
        let end = if below { -reach } else { mu + reach };
        if let Some(limit) = point(pair, direction, end) {
            let keep: Vec<usize> =
                (0..self.loss.len()).filter(|&i| self.loss[i] <= limit.loss).collect();
            let pick = |values: &[f64]| keep.iter().map(|&i| values[i]).collect();
            self.ln_weight = pick(&self.ln_weight);
            self.weight = pick(&self.weight);
            self.loss = pick(&self.loss);
        }
        self
    }
}
