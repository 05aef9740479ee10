//! Closed forms of one Gaussian release under Poisson sampling.

use super::value::ExactValue;
use crate::dominating_pairs::Direction;
use crate::math::gaussian_dp::{gaussian_delta, gaussian_epsilon};
use crate::math::normal;

/// Returns δ at `epsilon`. "Remove": `q` times the δ of the Gaussian at the ε before sampling
/// (Balle, Barthe, Gaboardi 2018, Theorem 2). "Add": the outcomes whose loss exceeds ε are a
/// half-line.
pub(super) fn single_sampled_delta(q: f64, mu: f64, direction: Direction, epsilon: f64) -> f64 {
    match direction {
        Direction::Remove => q * gaussian_delta(mu, (epsilon.exp_m1() / q).ln_1p()),
        Direction::Add => {
            let before = (-epsilon).exp_m1() / q;
            if before <= -1.0 {
                return 0.0;
            }
            let end = (before.ln_1p() + 0.5 * mu * mu) / mu;
            let mixed = (1.0 - q) * normal::cdf(end) + q * normal::cdf(end - mu);
            (normal::cdf(end) - epsilon.exp() * mixed).max(0.0)
        }
    }
}

/// Returns ε at `delta`, the inverse of [`single_sampled_delta`].
pub(super) fn single_sampled_epsilon(
    q: f64,
    mu: f64,
    direction: Direction,
    delta: f64,
) -> Option<ExactValue> {
    let value = match direction {
        Direction::Remove => {
            let before = if delta >= q { 0.0 } else { gaussian_epsilon(mu, delta / q) };
            (q * before.exp_m1()).ln_1p()
        }
        // Never above "remove" for a single step (Zhu, Dong, Wang 2022, Theorem 11).
        Direction::Add => 0.0,
    };
    value.is_finite().then_some(ExactValue { value, relative_error: 1e-12 })
}
