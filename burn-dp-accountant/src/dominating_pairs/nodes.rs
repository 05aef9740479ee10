//! Nodes and weights under `Q`, and the moments of the likelihood ratio from them.

use super::direction::Direction;
use super::loss::point;
use super::pair::Pair;
use super::tail::Tail;
use crate::math::logarithms::exp_minus_tangent;

/// A quadrature rule for one pair and direction, accurate for moments up to the order that it was
/// created for.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    ln_weight: Vec<f64>,
    weight: Vec<f64>,
    loss: Vec<f64>,
    /// The outcomes without nodes.
    tail: Tail,
}

/// Exponent above which the subtraction of the first terms is below the rounding.
pub(super) const LARGEST_EXPONENT: f64 = 300.0;

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.loss.len()
    }

    /// Creates the rule with nodes `(ln w, loss)` for all outcomes except `tail`.
    pub(super) fn from_points(points: Vec<(f64, f64)>, tail: Tail) -> Self {
        let (ln_weight, loss): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
        let weight = ln_weight.iter().map(|w: &f64| w.exp()).collect();
        Self { ln_weight, weight, loss, tail }
    }

    /// Returns `P(B) - Q(B)` of the outcomes `B` without nodes.
    pub(super) fn omitted_excess(&self) -> f64 {
        self.tail.excess
    }

    pub(super) fn peak(&self, order: f64) -> f64 {
        let exponents = self.ln_weight.iter().zip(&self.loss).map(|(w, y)| w + order * y);
        exponents.fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns `ln E_Q[L^order]` for real `order > 1`. Without a tail `B`, `E_Q[L^a] - 1` is
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
                        // The other terms matter for orders near 1.
                        (ln_weight + order * y).exp() - order * (ln_weight + y).exp()
                            + (order - 1.0) * weight
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

    /// Returns `K(θ) = ln E_Q[L^{θ+1}]` with its first and second derivative.
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

    /// Removes the outcomes more than `reach` beyond the means of `P`. They are too rare to change
    /// δ, although they would dominate a large tilt.
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
