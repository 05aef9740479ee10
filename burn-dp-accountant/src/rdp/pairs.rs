//! Rényi divergences of single dominating pairs.

use crate::dominating_pairs::{Direction, Pair, directions, largest_loss, trapezoidal_nodes};
use crate::math::logarithms::ln_add_exp;

/// Returns an upper bound on the Rényi divergence of one pair, in the worse direction.
pub(super) fn rdp_of_pair(pair: &Pair, order: f64) -> f64 {
    // The divergence grows with the order; nearer to 1, the rounding of the moment would decide.
    let order = order.max(1.0 + 1e-6);
    match *pair {
        Pair::Gaussian { mu } => 0.5 * order * mu * mu,
        // The direction "remove" is the larger one (Mironov, Talwar, Zhang 2019, Theorem 5).
        Pair::Sampled { q, mu } => rdp_sampled(pair, q, mu, order),
        Pair::Substituted { q, mu } => {
            match trapezoidal_nodes(pair, Direction::Remove, order..=order, 0.0) {
                Some(nodes) => nodes.ln_moment(order) / (order - 1.0),
                None => sampled_upper_bound(q, 2.0 * mu, order),
            }
        }
        // Fixed-size sampling has its own bound; other mixtures have none.
        Pair::Symmetrized { .. } => f64::INFINITY,
        // Bounds on δ that are positive at every ε have no Rényi divergence.
        Pair::Bounded(_) => f64::INFINITY,
        Pair::Laplace { mu } => rdp_laplace(mu, order),
        // Quasi-convexity: mixing in the other distribution never increases the divergence.
        Pair::SampledLaplace { mu, .. } => {
            let parts = [(pair.clone(), 1)];
            let largest = directions(&parts).into_iter().map(|d| largest_loss(&parts, d));
            rdp_laplace(mu, order).min(largest.fold(0.0, f64::max))
        }
        Pair::RandomizedResponse { epsilon } => {
            let ln_p = -((-epsilon).exp()).ln_1p();
            let ln_not = ln_p - epsilon;
            let moment = ln_add_exp(
                order * ln_p + (1.0 - order) * ln_not,
                order * ln_not + (1.0 - order) * ln_p,
            );
            (moment / (order - 1.0)).clamp(0.0, epsilon)
        }
        Pair::DiscreteGaussian { sigma, shift } => 0.5 * order * (shift / sigma).powi(2),
        // Quasi-convexity: the chosen step as part of the outcome.
        Pair::Allocated(ref allocation) => 0.5 * order * allocation.shift().powi(2),
        // The component as part of the outcome, in both directions.
        Pair::Line { ref components } => {
            let term = |(w, mu): &(f64, f64)| w.ln() + 0.5 * order * (order - 1.0) * mu * mu;
            let moment = components.iter().map(term).fold(f64::NEG_INFINITY, ln_add_exp);
            moment.max(0.0) / (order - 1.0)
        }
        // The component is part of the outcome: the moments add up.
        Pair::Mixture { ref components, .. } => {
            let terms =
                components.iter().map(|(w, p)| w.ln() + (order - 1.0) * rdp_of_pair(p, order));
            terms.fold(f64::NEG_INFINITY, ln_add_exp).max(0.0) / (order - 1.0)
        }
    }
}

fn rdp_sampled(pair: &Pair, q: f64, mu: f64, order: f64) -> f64 {
    match trapezoidal_nodes(pair, Direction::Remove, order..=order, 0.0) {
        Some(nodes) => nodes.ln_moment(order) / (order - 1.0),
        None => sampled_upper_bound(q, mu, order),
    }
}

/// Returns an upper bound from Minkowski's inequality: `E[(1-q+qL)^α]^{1/α} <= 1 - q + q
/// E[L^α]^{1/α}`.
fn sampled_upper_bound(q: f64, mu: f64, order: f64) -> f64 {
    let plain = 0.5 * (order - 1.0) * mu * mu;
    let ln_norm = ln_add_exp((-q).ln_1p(), q.ln() + plain);
    (order / (order - 1.0) * ln_norm).max(0.0)
}

/// Returns the divergence of Laplace noise (Mironov 2017, Proposition 6).
fn rdp_laplace(mu: f64, order: f64) -> f64 {
    let moment = ln_add_exp(
        (order / (2.0 * order - 1.0)).ln() + (order - 1.0) * mu,
        ((order - 1.0) / (2.0 * order - 1.0)).ln() - order * mu,
    );
    (moment / (order - 1.0)).clamp(0.0, mu)
}
