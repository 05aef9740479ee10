//! Conversions between a Rényi bound and `(ε, δ)`.

/// Returns an upper bound on the ε at `delta` of a mechanism whose Rényi divergence of order
/// `order` is at most `rdp`: `ρ + ln((α-1)/α) - (ln δ + ln α)/(α-1)`, not below 0. Infinite if the
/// order is not above 1.
///
/// # References
///
/// "The Discrete Gaussian for Differential Privacy", Canonne, Kamath, Steinke 2020, Proposition 12;
/// "Hypothesis Testing Interpretations and Rényi Differential Privacy", Balle et al. 2020, Theorem
/// 21.
pub fn epsilon_from_rdp(order: f64, rdp: f64, delta: f64) -> f64 {
    if order.is_nan() || order <= 1.0 || rdp.is_nan() {
        return f64::INFINITY;
    }
    let epsilon = rdp + (-1.0 / order).ln_1p() - (delta.ln() + order.ln()) / (order - 1.0);
    if epsilon.is_nan() { f64::INFINITY } else { epsilon.max(0.0) }
}

/// Returns an upper bound on the δ at `epsilon` of a mechanism whose Rényi divergence of order
/// `order` is at most `rdp`. The inverse of [`epsilon_from_rdp`]; 1 if the order is not above 1.
pub fn delta_from_rdp(order: f64, rdp: f64, epsilon: f64) -> f64 {
    if order.is_nan() || order <= 1.0 || rdp.is_nan() {
        return 1.0;
    }
    let exponent = (order - 1.0) * (rdp - epsilon + (-1.0 / order).ln_1p()) - order.ln();
    exponent.exp().min(1.0)
}

/// Returns an upper bound on ε by the older conversion `ρ + ln(1/δ)/(α-1)`, which papers quote.
///
/// It is never below [`epsilon_from_rdp`], the tighter bound.
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
    fn conversions_of_delta_and_epsilon_are_inverse() {
        for order in [1.5, 3.0, 20.0] {
            let delta = delta_from_rdp(order, 0.7, 3.0);
            assert!((epsilon_from_rdp(order, 0.7, delta) - 3.0).abs() < 1e-12);
        }
    }

    #[test]
    fn tight_conversion_is_never_above_the_older_one() {
        for order in [1.01, 1.5, 2.0, 64.0, 1e4] {
            assert!(
                epsilon_from_rdp(order, 0.3, 1e-6) <= epsilon_from_rdp_mironov(order, 0.3, 1e-6)
            );
        }
    }

    #[test]
    fn order_not_above_one_guarantees_nothing() {
        assert_eq!(epsilon_from_rdp(1.0, 0.1, 1e-5), f64::INFINITY);
        assert_eq!(delta_from_rdp(f64::NAN, 0.1, 1.0), 1.0);
    }
}
