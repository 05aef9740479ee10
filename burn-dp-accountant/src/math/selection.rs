//! The truncated negative binomial distribution.

/// Minimum logarithm of γ: below it, the mean overflows.
const LOWEST: f64 = -700.0;

/// Returns the mean of the truncated negative binomial of parameter γ.
fn mean_of(ln_gamma: f64, shape: f64) -> f64 {
    let gamma = ln_gamma.exp();
    if shape == 0.0 {
        (1.0 / gamma - 1.0) / -ln_gamma
    } else {
        shape * (1.0 - gamma) / (gamma * -(shape * ln_gamma).exp_m1())
    }
}

/// Returns whether a truncated negative binomial of this shape has this mean for some representable
/// γ.
pub(crate) fn has_mean(mean: f64, shape: f64) -> bool {
    mean <= 1.0 || mean_of(LOWEST, shape) >= mean
}

/// Returns the parameter γ of the truncated negative binomial with this mean; `None` for mean 1.
pub(crate) fn negative_binomial_gamma(mean: f64, shape: f64) -> Option<f64> {
    if mean <= 1.0 {
        return None;
    }
    // The mean decreases in γ. The lower end is safe: a smaller γ gives a larger bound.
    let (mut low, mut high) = (LOWEST, -1e-12);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if mean_of(middle, shape) > mean { low = middle } else { high = middle }
    }
    Some(f64::exp(low))
}
