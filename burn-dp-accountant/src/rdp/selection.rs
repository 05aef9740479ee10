//! The Rényi divergence of repeat-and-select (hyperparameter search).
//!
//! # References
//!
//! "Hyperparameter Tuning with Rényi Differential Privacy", Papernot and Steinke 2022: Theorem 2
//! (truncated negative binomial) and Theorem 6 (Poisson).

use crate::event::RunCount;
use crate::math::minimization::minimize;

/// Step between logarithms of the other orders minus 1: a quarter of a decade.
const ORDER_STEP: f64 = 0.25 * std::f64::consts::LN_10;

/// Returns an upper bound of the Rényi divergence of order `order`, from the divergence
/// `rdp(order)` and `delta(epsilon)` of one run.
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
            // Every other order gives a bound; the best of a list is refined.
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
            let epsilon_hat = (1.0 / (order - 1.0)).ln_1p();
            let delta_hat = delta(epsilon_hat);
            own + mean * delta_hat + mean.ln().max(0.0) / (order - 1.0)
        }
    }
}

/// Returns the parameter γ of the truncated negative binomial with this mean; `None` for mean 1.
fn negative_binomial_gamma(mean: f64, shape: f64) -> Option<f64> {
    if mean <= 1.0 {
        return None;
    }
    let mean_of = |ln_gamma: f64| {
        let gamma = ln_gamma.exp();
        if shape == 0.0 {
            (1.0 / gamma - 1.0) / -ln_gamma
        } else {
            shape * (1.0 - gamma) / (gamma * -(shape * ln_gamma).exp_m1())
        }
    };
    // The mean decreases in γ. The lower end is safe: a smaller γ gives a larger bound.
    let (mut low, mut high) = (-700.0, -1e-12);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if mean_of(middle) > mean { low = middle } else { high = middle }
    }
    Some(f64::exp(low))
}
