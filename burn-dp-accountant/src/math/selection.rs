//! The truncated negative binomial distribution.

/// Returns the parameter γ of the truncated negative binomial with this mean; `None` for mean 1.
pub(crate) fn negative_binomial_gamma(mean: f64, shape: f64) -> Option<f64> {
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
