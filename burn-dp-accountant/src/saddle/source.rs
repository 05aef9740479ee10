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
                if let Some(nodes) = trapezoidal_nodes(pair, direction, order, 0.0) {
                    return Some(nodes.truncated(pair, direction, reach));
                }
                // On the whole line an impossible loss dominates such an order. What the panels
                // omit below is beyond their end, so it is far rarer than what is omitted above.
                if reach > 13.0 || !matches!(pair, Pair::Sampled { .. }) {
                    return None;
                }
                let tail = Tail::beyond_reach(pair, direction, reach)?;
                panel_nodes(pair, direction, order, 0.0, &tail)
            }
            // No loss below the cut has such a large tilt.
            Self::Cut(cut) if order * cut > 1e4 => None,
            Self::Cut(cut) => {
                let tail = Tail::above(pair, direction, cut)?;
                panel_nodes(pair, direction, order, 0.0, &tail)
            }
        }
    }
}

/// What the cumulants are computed from.
pub(super) enum Source {
    Gaussian { mu: f64 },
    Nodes { pair: Pair, direction: Direction, nodes: Nodes, order: f64 },
    Discrete { points: Vec<(f64, f64)> },
}

impl Source {
    /// Returns `K`, `K'` and `K''` at `theta > 0`.
    pub(super) fn at(&mut self, theta: f64, limit: Limit) -> (f64, f64, f64) {
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
