//! Between a Rényi bound and `(ε, δ)`.

/// The ε at `delta` of a mechanism whose Rényi divergence of order `order` is at most `rdp`:
/// `ρ + ln((α-1)/α) - (ln δ + ln α)/(α-1)`, not below 0. An upper bound of the true ε.
///
/// # References
///
/// "The Discrete Gaussian for Differential Privacy", Canonne, Kamath, Steinke 2020, Proposition 12;
/// "Hypothesis Testing Interpretations and Rényi Differential Privacy", Balle et al. 2020, Theorem 21.
pub fn epsilon_from_rdp(order: f64, rdp: f64, delta: f64) -> f64 {
    if order.is_nan() || order <= 1.0 || rdp.is_nan() {
        return f64::INFINITY;
    }
    let epsilon = rdp + (-1.0 / order).ln_1p() - (delta.ln() + order.ln()) / (order - 1.0);
    if epsilon.is_nan() { f64::INFINITY } else { epsilon.max(0.0) }
}

/// The δ at `epsilon` of a mechanism whose Rényi divergence of order `order` is at most `rdp`. An
/// upper bound of the true δ. The inverse of [`epsilon_from_rdp`].
pub fn delta_from_rdp(order: f64, rdp: f64, epsilon: f64) -> f64 {
    if order.is_nan() || order <= 1.0 || rdp.is_nan() {
        return 1.0;
    }
    let exponent = (order - 1.0) * (rdp - epsilon + (-1.0 / order).ln_1p()) - order.ln();
    exponent.exp().min(1.0)
}

/// The older, looser conversion `ρ + ln(1/δ)/(α-1)`: kept under its own name because papers quote
/// it. An upper bound of the true ε, never below [`epsilon_from_rdp`].
///
/// # References
///
/// "Rényi Differential Privacy", Mironov 2017, Proposition 3.
pub fn epsilon_from_rdp_mironov(order: f64, rdp: f64, delta: f64) -> f64 {
    if order > 1.0 { rdp - delta.ln() / (order - 1.0) } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_and_epsilon_conversion_are_inverse() {
        for order in [1.5, 3.0, 20.0] {
            let delta = delta_from_rdp(order, 0.7, 3.0);
            assert!((epsilon_from_rdp(order, 0.7, delta) - 3.0).abs() < 1e-12);
        }
    }

    #[test]
    fn the_tight_conversion_is_never_above_the_older_one() {
        for order in [1.01, 1.5, 2.0, 64.0, 1e4] {
            assert!(
                epsilon_from_rdp(order, 0.3, 1e-6) <= epsilon_from_rdp_mironov(order, 0.3, 1e-6)
            );
        }
    }

    #[test]
    fn an_order_that_is_not_above_one_guarantees_nothing() {
        assert_eq!(epsilon_from_rdp(1.0, 0.1, 1e-5), f64::INFINITY);
        assert_eq!(delta_from_rdp(f64::NAN, 0.1, 1.0), 1.0);
    }
}
