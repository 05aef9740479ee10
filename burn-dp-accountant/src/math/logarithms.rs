//! Sums, differences and binomial coefficients as logarithms.

/// Returns `ln(e^a + e^b)` without overflow.
pub(crate) fn ln_add_exp(a: f64, b: f64) -> f64 {
    let (high, low) = if a >= b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// Returns the logarithm of a sum of exponentials.
pub(crate) fn ln_sum_exp(terms: impl Iterator<Item = f64>) -> f64 {
    terms.fold(f64::NEG_INFINITY, ln_add_exp)
}

/// Returns `ln(e^a - e^b)` for `a >= b`.
pub(crate) fn ln_sub_exp(a: f64, b: f64) -> f64 {
    if b == f64::NEG_INFINITY {
        return a;
    }
    let difference = b - a;
    if difference > -std::f64::consts::LN_2 {
        a + (-difference.exp_m1()).ln()
    } else {
        a + (-difference.exp()).ln_1p()
    }
}

/// Returns `e^t - 1 - t`, also accurate for small `t`.
pub(crate) fn exp_minus_tangent(t: f64) -> f64 {
    if t.abs() < 0.5 { t * t * taylor_tail(|sum, k| sum * t / k + 1.0) } else { t.exp_m1() - t }
}

/// Returns `1/2! (1 + t/3 (1 + t/4 (...)))` by Horner's rule, 17 terms.
fn taylor_tail(step: impl Fn(f64, f64) -> f64) -> f64 {
    let mut sum = 1.0;
    for k in (3..=18).rev() {
        sum = step(sum, f64::from(k));
    }
    0.5 * sum
}

/// Returns `ln n!/(k!(n-k)!)` for real `n`.
pub(crate) fn ln_binomial(n: f64, k: f64) -> f64 {
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_minus_tangent_equals_its_definition() {
        for t in [-0.5f64, -0.499_999, 0.499_999, 0.5] {
            let definition = t.exp_m1() - t;
            assert!((exp_minus_tangent(t) / definition - 1.0).abs() < 1e-14, "{t}");
        }
        assert!((exp_minus_tangent(1e-9) / 5e-19 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn logarithmic_sums_and_differences_are_inverse() {
        for (a, b) in [(0.0, -1.0), (700.0, 699.999), (-1e3, -2e3)] {
            assert!((ln_sub_exp(ln_add_exp(a, b), b) - a).abs() < 1e-10);
        }
    }
}
