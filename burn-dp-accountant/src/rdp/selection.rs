//! The Rényi divergence of repeat-and-select (hyperparameter search).
//!
//! # References
//!
//! "Hyperparameter Tuning with Rényi Differential Privacy", Papernot and Steinke 2022: Theorem 2
//! (truncated negative binomial) and Theorem 6 (Poisson).

use crate::event::RunCount;
use crate::math::minimization::minimize;
use crate::math::selection::negative_binomial_gamma;

/// Step between logarithms of the other orders minus 1: a quarter of a decade.
const ORDER_STEP: f64 = 0.25 * std::f64::consts::LN_10;

/// Returns an upper bound on the Rényi divergence of order `order`, from the divergence
/// `rdp(order)` of one run and its `delta(order)` at `ln(1 + 1/(order-1))`.
pub(super) fn rdp_of_selection(
    rdp: impl Fn(f64) -> f64,
    delta: impl Fn(f64) -> f64,
    runs: RunCount,
    order: f64,
) -> f64 {
    let own = rdp(order);
    let other_orders = (-16..=24).map(|k| f64::from(k) * ORDER_STEP);
    match runs {
        RunCount::TruncatedNegativeBinomial { mean, shape } => {
            let Some(gamma) = negative_binomial_gamma(mean, shape) else {
                return own;
            };
            // Every other order yields a bound; the best one in a list is refined.
            let bound = |ln_excess: f64| {
                let hat = 1.0 + ln_excess.exp();
                (1.0 + shape) * ((1.0 - 1.0 / hat) * rdp(hat) - gamma.ln() / hat)
            };
            let (at, coarse) = other_orders
                .map(|ln_excess| (ln_excess, bound(ln_excess)))
                .fold((0.0, f64::INFINITY), |best, one| if one.1 < best.1 { one } else { best });
            let (_, fine) = minimize(at - ORDER_STEP, at + ORDER_STEP, 1e-3, bound);
            let extra = coarse.min(fine);
            own + extra.max(0.0) + mean.ln() / (order - 1.0)
        }
        RunCount::Poisson { mean } => {
            own + mean * delta(order) + mean.ln().max(0.0) / (order - 1.0)
        }
    }
}
