//! The cumulants of the privacy loss of one pair.

use crate::dominating_pairs::{Direction, Nodes, Pair, Tail, panel_nodes, trapezoidal_nodes};

/// The losses that take part.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    /// Losses of outcomes up to this many standard deviations beyond the mean.
    Reach(f64),
    /// Losses up to this one.
    Cut(f64),
}

impl Limit {
    pub(super) fn nodes(self, pair: &Pair, direction: Direction, order: f64) -> Option<Nodes> {
        match self {
            Self::Reach(reach) => {
                if let Some(nodes) = trapezoidal_nodes(pair, direction, 1.0..=order, 0.0) {
                    return Some(nodes.truncated(pair, direction, reach));
                }
                // On the whole line an impossible loss dominates such an order. The losses that the
                // panels omit below are beyond their end, so they are far rarer than the losses
                // omitted above.
                if reach > 13.0 || !matches!(pair, Pair::Sampled { .. }) {
                    return None;
                }
                let tail = Tail::beyond_reach(pair, direction, reach)?;
                panel_nodes(pair, direction, order, 0.0, &tail)
            }
            // No loss below the cut has a tilt this large.
            Self::Cut(cut) if order * cut > 1e4 => None,
            Self::Cut(cut) => {
                let tail = Tail::above(pair, direction, cut)?;
                panel_nodes(pair, direction, order, 0.0, &tail)
            }
        }
    }
}

/// Number of cached rules.
const KEPT_RULES: usize = 12;

/// Rules of quadrature with the orders up to which they hold. A search for a tilt goes back and
/// forth between orders that differ by orders of magnitude.
pub(super) struct Rules {
    kept: Vec<(f64, Nodes)>,
    /// The smallest order without a rule: a rule of more nodes than allowed was tried.
    impossible: f64,
}

impl Rules {
    pub(super) fn new(order: f64, nodes: Nodes) -> Self {
        Self { kept: vec![(order, nodes)], impossible: f64::INFINITY }
    }

    /// Returns a rule for this order whose own order is at most ten times as large, or the nearest
    /// one above if there is none and `rule` returns none.
    fn up_to(&mut self, wanted: f64, rule: impl Fn(f64) -> Option<Nodes>) -> Option<&Nodes> {
        let nearest = |rules: &[(f64, Nodes)]| {
            let above = rules.iter().enumerate().filter(|(_, (order, _))| *order >= wanted);
            above.min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(i, (order, _))| (i, *order))
        };
        let mut found = nearest(&self.kept);
        let order = 2.0 * wanted;
        if found.is_none_or(|(_, order)| 0.1 * order > wanted) && order < self.impossible {
            match rule(order) {
                Some(nodes) => {
                    if self.kept.len() >= KEPT_RULES {
                        self.kept.remove(0);
                    }
                    self.kept.push((order, nodes));
                    found = nearest(&self.kept);
                }
                None => self.impossible = order,
            }
        }
        found.map(|(i, _)| &self.kept[i].1)
    }
}

/// The source of the cumulants.
pub(super) enum CumulantSource {
    Gaussian { mu: f64 },
    Nodes { pair: Pair, direction: Direction, rules: Rules },
    Discrete { points: Vec<(f64, f64)> },
}

impl CumulantSource {
    /// Returns `K`, `K'` and `K''` at `theta > 0`.
    pub(super) fn at(&mut self, theta: f64, limit: Limit) -> (f64, f64, f64) {
        match self {
            Self::Gaussian { mu } => {
                let variance = *mu * *mu;
                (0.5 * theta * (theta + 1.0) * variance, (theta + 0.5) * variance, variance)
            }
            Self::Nodes { pair, direction, rules } => {
                let rule = |order: f64| limit.nodes(pair, *direction, order);
                match rules.up_to(theta + 1.0, rule) {
                    Some(nodes) => nodes.cumulants(theta),
                    None => (f64::NAN, f64::NAN, f64::NAN),
                }
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
