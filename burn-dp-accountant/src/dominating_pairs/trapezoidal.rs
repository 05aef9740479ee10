//! The trapezoidal rule under `Q`, for moments of the likelihood ratio.
//!
//! `E_Q[L^a] - 1 = E_Q[L^a - 1 - a(L - 1)]`, because `E_Q[L] = 1`. The integrand on the right is
//! not negative for real `a >= 1`, so that nothing cancels for small sampling probabilities. The
//! integrands are analytic in a strip around the real line and decay like a Gaussian, hence the
//! trapezoidal rule converges geometrically (Trefethen and Weideman 2014, Theorem 5.1).

use std::ops::RangeInclusive;

use super::direction::Direction;
use super::loss::{ln_mixture, point};
use super::nodes::Nodes;
use super::pair::Pair;
use super::tail::Tail;

/// Maximum number of nodes. Where more are needed, the closed bounds are better.
const MAX_NODES: f64 = 60_000.0;

/// Returns the rule for moments `E_Q[L^a]` with `Re a` in `orders`, or 1, and `|Im a| <=
/// frequency`. `None` if the pair has no such rule or the rule would be too long.
pub(crate) fn trapezoidal_nodes(
    pair: &Pair,
    direction: Direction,
    orders: RangeInclusive<f64>,
    frequency: f64,
) -> Option<Nodes> {
    let (least, order) = orders.into_inner();
    let mu = match *pair {
        Pair::Sampled { mu, .. } | Pair::Substituted { mu, .. } => mu,
        _ => return None,
    };
    // Half-width of the strip without singularities (1 - q + q L = 0), capped because the
    // Gaussian grows along the imaginary axis.
    let strip = (0.85 * std::f64::consts::PI / mu).min(6.0);
    let reach = order * mu + 13.5;
    let log_integrand =
        |x: f64| point(pair, direction, x).map_or(f64::NEG_INFINITY, |p| p.ln_q + order * p.loss);
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
    let mut points = Vec::new();
    let first = (low / step).floor() as i64;
    let last = (high / step).ceil() as i64;
    for k in first..=last {
        if let Some(p) = point(pair, direction, step * k as f64) {
            let ln_weight = p.ln_q + step.ln();
            // Every node in between has its largest share of a moment of an order in between.
            if least < order
                || ln_weight > peak.min(0.0) - 100.0
                || ln_weight + order * p.loss > peak - 100.0
            {
                points.push((ln_weight, p.loss));
            }
        }
    }
    Some(Nodes::from_points(points, Tail::NONE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // The largest shares of these moments are at outcomes far apart.
    #[test]
    fn one_rule_holds_for_all_orders_in_its_range() {
        let pair = Pair::Sampled { q: 0.75, mu: 9.9 };
        let rule = |orders| trapezoidal_nodes(&pair, Direction::Remove, orders, 0.0).unwrap();
        let all = rule(1.0..=64.0);
        for order in [1.5, 2.0, 4.0, 8.0, 30.0, 64.0] {
            let (found, own) = (all.ln_moment(order), rule(order..=order).ln_moment(order));
            assert!((found / own - 1.0).abs() < 1e-12, "{order}: {found} {own}");
        }
    }
}
