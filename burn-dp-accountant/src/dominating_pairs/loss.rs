//! The privacy loss of a pair with Gaussian noise, as a function of the outcome.

use super::direction::Direction;
use super::pair::Pair;
use crate::math::logarithms::ln_add_exp;
use crate::math::normal::LN_DENSITY_AT_ZERO;

/// Logarithm of the density of `Q` and the privacy loss `ln dP/dQ` at a point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DensityAndLoss {
    pub(crate) ln_q: f64,
    pub(crate) loss: f64,
}

/// Returns `ln(1 - q + q e^{μx - μ²/2})`, accurate for tiny `q` and tiny `1 - q`, and free of
/// overflow.
pub(crate) fn ln_mixture(q: f64, mu: f64, x: f64) -> f64 {
    let exponent = mu * x - 0.5 * mu * mu;
    if exponent > 30.0 {
        ln_add_exp((-q).ln_1p(), q.ln() + exponent)
    } else {
        let excess = q * exponent.exp_m1();
        // Both terms are positive, where 1 and the excess would cancel. Then q > 1/2, and 1 - q is
        // exact.
        if excess < -0.5 { ((1.0 - q) + q * exponent.exp()).ln() } else { excess.ln_1p() }
    }
}

/// Returns `ln Σ_j w_j e^{μ_j x - μ_j²/2}` for weights that add up to 1.
pub(crate) fn ln_line(components: &[(f64, f64)], x: f64) -> f64 {
    let exponent = |mu: f64| mu * x - 0.5 * mu * mu;
    if components.iter().any(|(_, mu)| exponent(*mu) > 30.0) {
        let terms = components.iter().map(|(weight, mu)| weight.ln() + exponent(*mu));
        terms.fold(f64::NEG_INFINITY, ln_add_exp)
    } else {
        // The terms of means of 0 are 0.
        let terms = components.iter().map(|(weight, mu)| weight * exponent(*mu).exp_m1());
        let excess = terms.sum::<f64>();
        if excess >= -0.5 {
            return excess.ln_1p();
        }
        components.iter().map(|(weight, mu)| weight * exponent(*mu).exp()).sum::<f64>().ln()
    }
}

/// Returns density and loss at outcome `x` of a sampled pair with Gaussian noise. `None` for pairs
/// whose moments have closed forms or whose loss is not analytic.
pub(crate) fn point(pair: &Pair, direction: Direction, x: f64) -> Option<DensityAndLoss> {
    let ln_phi = LN_DENSITY_AT_ZERO - 0.5 * x * x;
    match *pair {
        Pair::Sampled { q, mu } => {
            let mixture = ln_mixture(q, mu, x);
            Some(match direction {
                Direction::Remove => DensityAndLoss { ln_q: ln_phi, loss: mixture },
                Direction::Add => DensityAndLoss { ln_q: ln_phi + mixture, loss: -mixture },
            })
        }
        Pair::Substituted { q, mu } => {
            let below = ln_mixture(q, mu, -x);
            Some(DensityAndLoss { ln_q: ln_phi + below, loss: ln_mixture(q, mu, x) - below })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_keep_their_digits_for_sampling_probabilities_next_to_1() {
        for places in [20, 40, 50] {
            let rest = f64::powi(0.5, places);
            let (q, mu) = (1.0 - rest, 5.0);
            for x in [-9.0, -4.0, 0.0, 1.0, 2.4, 2.6, 4.0] {
                // The same sum with the largest term in front.
                let exponent: f64 = mu * x - 0.5 * mu * mu;
                let truth = exponent + (rest * (-exponent).exp_m1()).ln_1p();
                let found = [ln_mixture(q, mu, x), ln_line(&[(rest, 0.0), (q, mu)], x)];
                for loss in found {
                    assert!(
                        (loss - truth).abs() <= 1e-13 * (1.0 + truth.abs()),
                        "{rest} {x} {loss}"
                    );
                }
            }
        }
    }
}
