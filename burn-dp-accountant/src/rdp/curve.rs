//! The Rényi divergence of a composition, as a function of the order.

use std::sync::Arc;

use super::base_delta::BaseDelta;
use super::conversion::{delta_from_rdp, epsilon_from_rdp};
use super::fixed_size::FixedSizeBound;
use super::pairs::rdp_of_pair;
use super::selection::rdp_of_selection;
use crate::dominating_pairs::{DominatingPairs, Pair, dominating_pairs_of};
use crate::error::AccountantError;
use crate::event::{DpEvent, RunCount};
use crate::math::minimization::minimize;
use crate::relation::NeighboringRelation;

/// The contribution of one event.
#[derive(Debug, Clone)]
enum Term {
    /// `αρ` for this ρ.
    Linear(f64),
    /// A dominating pair.
    Pair(Pair),
    /// Fixed-size sampling.
    FixedSize(FixedSizeBound),
    /// Repeat-and-select.
    Selection { inner: Box<RenyiCurve>, delta: Arc<BaseDelta>, runs: RunCount },
    /// The exponential mechanism with this ε.
    Exponential(f64),
}

/// The composed curve, with the additive δ.
#[derive(Debug, Clone, Default)]
pub(crate) struct RenyiCurve {
    terms: Vec<(Term, u64)>,
    mass_at_infinity: f64,
    total_variation: f64,
    infinite: Option<String>,
}

impl RenyiCurve {
    /// Composes the curve of `events` under `relation`.
    pub(crate) fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let mut curve = Self::default();
        for (event, count) in events {
            event.validate()?;
            curve.add(event, count, relation)?;
        }
        Ok(curve)
    }

    fn add(
        &mut self,
        event: &DpEvent,
        count: u64,
        relation: NeighboringRelation,
    ) -> Result<(), AccountantError> {
        event.for_each_part(count, &mut |part, count| self.add_part(part, count, relation))
    }

    fn add_part(
        &mut self,
        event: &DpEvent,
        count: u64,
        relation: NeighboringRelation,
    ) -> Result<(), AccountantError> {
        match event {
            DpEvent::ZeroConcentrated { rho } => {
                self.terms.push((Term::Linear(*rho), count));
                Ok(())
            }
            DpEvent::RepeatAndSelect { event, runs } => {
                let mut inner = RenyiCurve::default();
                inner.add(event, 1, relation)?;
                if inner.has_additive_delta() {
                    return Err(AccountantError::unsupported(
                        event.to_string(),
                        "repeat-and-select needs a pure Rényi bound; this event has an additive δ",
                    ));
                }
                self.infinite = self.infinite.take().or_else(|| inner.infinite.clone());
                let delta = Arc::new(BaseDelta::new(event, relation));
                let selection = Term::Selection { inner: Box::new(inner), delta, runs: *runs };
                self.terms.push((selection, count));
                Ok(())
            }
            // The bound of the continuous Gaussian (Canonne, Kamath, Steinke 2020, Theorem 14).
            DpEvent::DiscreteGaussian { sigma, sensitivity } => {
                let shift = relation.sensitivity() * *sensitivity as f64;
                self.terms.push((Term::Linear(0.5 * (shift / sigma).powi(2)), count));
                Ok(())
            }
            DpEvent::Exponential { epsilon } => {
                self.terms.push((Term::Exponential(*epsilon), count));
                Ok(())
            }
            _ => self.add_pairs(dominating_pairs_of([(event, count)], relation)?),
        }
    }

    fn add_pairs(&mut self, pairs: DominatingPairs) -> Result<(), AccountantError> {
        self.mass_at_infinity += pairs.mass_at_infinity;
        self.total_variation += pairs.total_variation;
        self.infinite = self.infinite.take().or(pairs.infinite);
        for (pair, count) in pairs.parts {
            let term = match pair {
                Pair::Gaussian { mu } => Term::Linear(0.5 * mu * mu),
                Pair::Symmetrized { q, ref components } if components.len() == 1 => {
                    Term::FixedSize(FixedSizeBound::new(q, components[0].1))
                }
                Pair::Symmetrized { .. } => {
                    return Err(AccountantError::unsupported(
                        "sampling with replacement",
                        "no Rényi bound is known here; use PldAccountant",
                    ));
                }
                other => Term::Pair(other),
            };
            self.terms.push((term, count));
        }
        Ok(())
    }

    /// Returns whether some δ is not covered by the Rényi divergence.
    pub(crate) fn has_additive_delta(&self) -> bool {
        self.mass_at_infinity > 0.0 || self.total_variation > 0.0
    }

    /// Returns whether nothing was released.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
            && self.mass_at_infinity == 0.0
            && self.total_variation == 0.0
            && self.infinite.is_none()
    }

    /// Returns why ε is infinite, if it is.
    pub(crate) fn infinite(&self) -> Option<&str> {
        self.infinite.as_deref()
    }

    /// Returns an upper bound on the Rényi divergence of order `order`, in the worse direction.
    pub(crate) fn at(&self, order: f64) -> f64 {
        self.terms.iter().map(|(term, count)| term.at(order) * *count as f64).sum()
    }

    /// Returns the δ that the Rényi bound does not cover at `epsilon`.
    fn extra_delta(&self, epsilon: f64) -> f64 {
        let variation = if self.total_variation > 0.0 {
            (1.0 + epsilon.exp()) * self.total_variation
        } else {
            0.0
        };
        self.mass_at_infinity + variation
    }

    /// Returns the smallest ε over all orders (an upper bound of the true ε), and its order.
    pub(crate) fn epsilon(&self, delta: f64) -> (f64, f64) {
        if self.infinite.is_some() {
            return (f64::INFINITY, f64::NAN);
        }
        if self.is_empty() {
            return (0.0, f64::NAN);
        }
        let left = delta - self.mass_at_infinity;
        if left <= 0.0 {
            return (f64::INFINITY, f64::NAN);
        }
        let (epsilon, order) = self.epsilon_of_terms(left);
        if self.total_variation == 0.0 {
            return (epsilon, order);
        }
        // Fixed point from above: the additive δ, (1 + e^ε)η, depends on the answer.
        let fits = |e: f64| self.delta(e).0 <= delta;
        let (mut low, mut high) = (epsilon, epsilon.max(1e-3));
        while !fits(high) {
            low = high;
            high *= 2.0;
            if high > 700.0 {
                return (f64::INFINITY, order);
            }
        }
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if fits(middle) { high = middle } else { low = middle }
        }
        (high, order)
    }

    fn epsilon_of_terms(&self, delta: f64) -> (f64, f64) {
        if self.terms.is_empty() {
            return (0.0, f64::NAN);
        }
        self.optimize(|order, rdp| epsilon_from_rdp(order, rdp, delta))
    }

    /// Returns the smallest δ over all orders (an upper bound of the true δ), and its order.
    pub(crate) fn delta(&self, epsilon: f64) -> (f64, f64) {
        if self.infinite.is_some() {
            return (1.0, f64::NAN);
        }
        let (delta, order) = if self.terms.is_empty() {
            (0.0, f64::NAN)
        } else {
            let (log_delta, order) =
                self.optimize(|order, rdp| delta_from_rdp(order, rdp, epsilon).ln());
            (log_delta.exp(), order)
        };
        ((delta + self.extra_delta(epsilon)).min(1.0), order)
    }

    /// Minimizes over the order: a coarse logarithmic grid of `α - 1` from 1e-6 to 1e7 (so that the
    /// optimum is never at the edge of a grid), then golden-section search around the best point.
    fn optimize(&self, value: impl Fn(f64, f64) -> f64) -> (f64, f64) {
        let at = |t: f64| {
            let order = 1.0 + t.exp();
            value(order, self.at(order))
        };
        let step = std::f64::consts::LN_10 / 4.0;
        let grid: Vec<(f64, f64)> = (-24..=28)
            .map(|k| {
                let t = step * f64::from(k);
                (t, at(t))
            })
            .collect();
        let best = grid.iter().fold(
            (0.0, f64::INFINITY),
            |best, &(t, v)| {
                if v < best.1 { (t, v) } else { best }
            },
        );
        let (t, refined) = minimize(best.0 - step, best.0 + step, 1e-5, at);
        let (t, refined) = if refined <= best.1 { (t, refined) } else { best };
        // Bounds for fixed-size sampling have their kinks at whole orders.
        let order = 1.0 + t.exp();
        let whole = [order.floor(), order.ceil()].into_iter().filter(|&n| n > 1.0);
        let (t, refined) = whole.fold((t, refined), |best, n| {
            let v = value(n, self.at(n));
            if v < best.1 { ((n - 1.0).ln(), v) } else { best }
        });
        // The margin is several orders of magnitude above the rounding of the moments.
        let margin = if refined.is_finite() { refined.abs() * 1e-11 } else { 0.0 };
        (refined + margin, 1.0 + t.exp())
    }
}

impl Term {
    fn at(&self, order: f64) -> f64 {
        match self {
            Self::Linear(rho) => order * rho,
            Self::Pair(pair) => rdp_of_pair(pair, order),
            Self::FixedSize(bound) => bound.at(order),
            Self::Selection { inner, delta, runs } => {
                let delta = |order: f64| {
                    let rdp = inner.delta((1.0 / (order - 1.0)).ln_1p()).0;
                    delta.at(order, rdp, |delta| runs.mean() * delta)
                };
                rdp_of_selection(|a| inner.at(a), delta, *runs, order)
            }
            // Bounded range implies ε²/8-zCDP (Cesar and Rogers 2021, Lemma 3.4).
            Self::Exponential(epsilon) => {
                let pure = rdp_of_pair(&Pair::RandomizedResponse { epsilon: *epsilon }, order);
                pure.min(0.125 * order * epsilon * epsilon)
            }
        }
    }
}
