//! The privacy losses of one release above a cut, in closed form.

use super::direction::Direction;
use super::loss::point;
use super::pair::Pair;
use crate::math::normal;

/// The outcomes `B` of one release whose loss exceeds a cut: all beyond one end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    /// Where `B` begins; `None` if no loss is above the cut.
    pub(super) end: Option<f64>,
    /// `Q(B)`.
    pub(crate) mass: f64,
    /// `P(B) - Q(B)`, which is not negative if the cut is not.
    pub(crate) excess: f64,
}

impl Tail {
    /// No loss is above the cut.
    pub(super) const NONE: Self = Self { end: None, mass: 0.0, excess: 0.0 };

    /// Returns the losses above `cut > 0`. `None` if the pair has no analytic loss, or if its
    /// largest losses are not rare.
    pub(crate) fn above(pair: &Pair, direction: Direction, cut: f64) -> Option<Self> {
        let mu = match (pair, direction) {
            (Pair::Gaussian { .. }, _) => return Some(Self::NONE),
            // The loss is bounded.
            (Pair::Sampled { q, .. }, Direction::Add) => {
                return (cut >= -(-q).ln_1p()).then_some(Self::NONE);
            }
            (Pair::Sampled { mu, .. } | Pair::Substituted { mu, .. }, _) => *mu,
            _ => return None,
        };
        // The loss increases with the outcome.
        let (mut low, mut high) = (0.0, mu + 38.0);
        if point(pair, direction, low)?.loss >= cut {
            return None;
        }
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if point(pair, direction, middle)?.loss < cut { low = middle } else { high = middle }
        }
        Some(Self::beyond(pair, high))
    }

    /// Returns the outcomes beyond the mean of `P` by more than `reach`, of a pair whose loss
    /// increases with the outcome.
    pub(crate) fn beyond_reach(pair: &Pair, direction: Direction, reach: f64) -> Option<Self> {
        match (pair, direction) {
            // The loss is bounded.
            (Pair::Sampled { .. }, Direction::Add) => Some(Self::NONE),
            (Pair::Sampled { mu, .. } | Pair::Substituted { mu, .. }, _) => {
                Some(Self::beyond(pair, mu + reach))
            }
            _ => None,
        }
    }

    /// Returns where `B` begins; `None` if no loss is above the cut.
    pub(crate) fn end(&self) -> Option<f64> {
        self.end
    }

    /// Returns the outcomes above `end`.
    fn beyond(pair: &Pair, end: f64) -> Self {
        let (Pair::Sampled { q, mu } | Pair::Substituted { q, mu }) = *pair else {
            return Self::NONE;
        };
        let beyond = |mean: f64| normal::cdf(mean - end);
        let other = if matches!(pair, Pair::Substituted { .. }) { -mu } else { 0.0 };
        Self {
            end: Some(end),
            mass: (1.0 - q) * beyond(0.0) + q * beyond(other),
            excess: q * (beyond(mu) - beyond(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn masses_above_a_cut_equal_the_quadrature() {
        for pair in [Pair::Sampled { q: 0.01, mu: 1.2 }, Pair::Substituted { q: 0.01, mu: 1.2 }] {
            let cut = 0.4;
            let tail = Tail::above(&pair, Direction::Remove, cut).unwrap();
            let end = tail.end.unwrap();
            let (mut mass, mut excess, step) = (0.0, 0.0, 1e-4);
            for k in 0..120_000 {
                let p = point(&pair, Direction::Remove, end + step * (0.5 + f64::from(k))).unwrap();
                assert!(p.loss > cut);
                mass += step * p.ln_q.exp();
                excess += step * p.ln_q.exp() * p.loss.exp_m1();
            }
            assert!((tail.mass / mass - 1.0).abs() < 1e-6, "{pair:?}: {tail:?} {mass}");
            assert!((tail.excess / excess - 1.0).abs() < 1e-6, "{pair:?}: {tail:?} {excess}");
        }
        // Under "add" the loss is bounded by -ln(1 - q).
        let pair = Pair::Sampled { q: 0.01, mu: 1.2 };
        assert_eq!(Tail::above(&pair, Direction::Add, 0.011).unwrap().mass, 0.0);
        assert!(Tail::above(&pair, Direction::Add, 0.005).is_none());
    }
}
