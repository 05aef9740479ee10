//! Gauss-Legendre quadrature in panels under `Q`, up to a given privacy loss.
//!
//! With small sampling probabilities, losses that practically never occur can dominate a tilted
//! moment. The trapezoidal rule cannot omit them, because it converges geometrically only on the
//! whole line. Panels can end anywhere.

use std::sync::LazyLock;

use super::direction::Direction;
use super::loss::{ln_mixture, point};
use super::nodes::Nodes;
use super::pair::Pair;
use super::tail::Tail;

/// Number of nodes in one panel.
const POINTS: usize = 16;

/// Maximum change `κ` of the exponent over half a panel: the error of the rule, `2^33 (16!)^4 κ^32
/// / (33 (32!)^3)` relative to the largest value, is then below rounding.
const LARGEST_CHANGE: f64 = 7.0;

/// Maximum number of nodes.
const MAX_NODES: usize = 300_000;

/// Exponent below which a moment, and one of a twentieth of its order, has no mass: there the nodes
/// only need to resolve the density.
const LOWEST: f64 = -1000.0;

/// Distance from the mean beyond which the standard normal distribution is negligible.
const END: f64 = 13.5;

/// Largest distance by which a tilt may move the mass.
const LARGEST_MOVE: f64 = 160.0;

/// Nodes and weights on `[-1, 1]`.
pub(crate) static GAUSS_16: LazyLock<[(f64, f64); POINTS]> = LazyLock::new(gauss_legendre);

/// Returns the rule for moments `E_Q[L^a]` with `1 <= Re a <= order` and `|Im a| <= frequency`,
/// without the losses of `tail`. `None` if the pair has no such rule or the rule would be too long.
pub(crate) fn panel_nodes(
    pair: &Pair,
    direction: Direction,
    order: f64,
    frequency: f64,
    tail: &Tail,
) -> Option<Nodes> {
    let (q, mu) = match *pair {
        Pair::Sampled { q, mu } | Pair::Substituted { q, mu } => (q, mu),
        _ => return None,
    };
    let high = tail.end.unwrap_or(mu + END);
    // Share of the shifted component, which increases: the slope of the loss over μ.
    let share = |x: f64| (q.ln() + mu * x - 0.5 * mu * mu - ln_mixture(q, mu, x)).exp();
    let slope = |left: f64, right: f64| match pair {
        Pair::Substituted { .. } => mu * (share(right) + share(-left)),
        _ => mu * share(right),
    };
    // A tilt moves the mass of the direction "add" toward lower outcomes, by at most the slope of
    // the loss there times the order.
    let moved = match (pair, direction) {
        (Pair::Sampled { .. }, Direction::Add) => order * slope(-END, -END),
        _ => 0.0,
    };
    if moved > LARGEST_MOVE {
        return None;
    }
    // The start and half of the length of each panel: a rule that is too long costs no nodes.
    let mut panels = Vec::new();
    let mut left = -END - moved;
    while left < high {
        let mut half = (0.7 / mu).min(0.5 * (high - left)).min(1.0);
        let loss = |x: f64| point(pair, direction, x).map_or(0.0, |p| p.loss);
        let largest = loss(left).max(loss(left + 2.0 * half));
        let turns = if (order - 1.0) * largest < LOWEST { 0.0 } else { frequency + order };
        loop {
            let right = left + 2.0 * half;
            let rate = turns * slope(left, right) + left.abs().max(right.abs()) + 1.0;
            if half * rate <= LARGEST_CHANGE || half < 1e-9 {
                break;
            }
            half *= 0.8;
        }
        if panels.len() > MAX_NODES / POINTS || half < 1e-9 && left + 4.0 * half < high {
            return None;
        }
        panels.push((left, half));
        left += 2.0 * half;
        if high - left < 1e-9 {
            break;
        }
    }
    let mut points = Vec::with_capacity(POINTS * panels.len());
    for (left, half) in panels {
        for &(node, weight) in GAUSS_16.iter() {
            let p = point(pair, direction, left + half * (1.0 + node))?;
            points.push((p.ln_q + (half * weight).ln(), p.loss));
        }
    }
    Some(Nodes::from_points(points, *tail))
}

/// Returns nodes and weights on `[-1, 1]`, by Newton's method on the Legendre polynomial.
fn gauss_legendre() -> [(f64, f64); POINTS] {
    let n = POINTS as f64;
    std::array::from_fn(|i| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 1.0;
        for _ in 0..20 {
            let (mut before, mut value) = (1.0, x);
            for k in 2..=POINTS {
                let k = k as f64;
                (before, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k);
            }
            slope = n * (x * value - before) / (x * x - 1.0);
            x -= value / slope;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::dominating_pairs::{ContourMoments, trapezoidal_nodes};

    #[test]
    fn rule_integrates_polynomials_up_to_its_order() {
        for power in [0, 2, 10, 30] {
            let sum: f64 = GAUSS_16.iter().map(|(x, w)| w * x.powi(power)).sum();
            let truth = 2.0 / f64::from(power + 1);
            assert!((sum / truth - 1.0).abs() < 1e-13, "{power}: {sum} {truth}");
        }
    }

    #[test]
    fn panels_agree_with_the_trapezoidal_rule() {
        let pairs = [Pair::Sampled { q: 0.01, mu: 0.8 }, Pair::Substituted { q: 0.05, mu: 0.5 }];
        for pair in pairs {
            for direction in [Direction::Remove, Direction::Add] {
                let (order, t) = (4.0, 35.0);
                let whole = trapezoidal_nodes(&pair, direction, 1.0..=order, t).unwrap();
                let none = panel_nodes(&pair, direction, order, t, &Tail::NONE).unwrap();
                assert!((none.ln_moment(order) - whole.ln_moment(order)).abs() < 1e-12);
                // The cut is exceeded with probability 1e-90.
                let tail = Tail::above(&pair, direction, 12.0).unwrap();
                let within = panel_nodes(&pair, direction, order, t, &tail).unwrap();
                let (whole, within) = (
                    ContourMoments::new(&whole, order - 1.0),
                    ContourMoments::new(&within, order - 1.0),
                );
                for t in [0.0, 3.0, 35.0] {
                    let (a, b) = (whole.ln_moment(t), within.ln_moment(t));
                    assert!((a - b).norm() < 1e-12, "{pair:?} {direction:?} {t}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn moments_below_a_cut_ignore_impossible_losses() {
        let pair = Pair::Sampled { q: 1e-5, mu: 1.0 };
        let whole =
            trapezoidal_nodes(&pair, Direction::Remove, 60.0..=60.0, 0.0).unwrap().ln_moment(60.0);
        let tail = Tail::above(&pair, Direction::Remove, 0.03).unwrap();
        let within = panel_nodes(&pair, Direction::Remove, 60.0, 0.0, &tail).unwrap();
        assert!(whole > 100.0 && within.ln_moment(60.0) < 1e-3, "{whole}");
    }
}
