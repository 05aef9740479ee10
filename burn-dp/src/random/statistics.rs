//! Decisions of statistical tests, with their error rate.
//!
//! Every decision is two-sided, because a fit that is too good is also wrong. A correct generator
//! fails a decision with probability 1e-6.

/// Returns Σ (observed - expected)² / expected.
pub(crate) fn chi_squared(observed: &[f64], expected: &[f64]) -> f64 {
    observed.iter().zip(expected).map(|(o, e)| (o - e).powi(2) / e).sum()
}

/// Returns the probability that a chi-squared variable exceeds `x`: the regularized upper
/// incomplete gamma function Q(degrees / 2, x / 2), by its recurrence Q(a + 1, y) = Q(a, y) + y^a
/// e^-y / Γ(a + 1).
fn survival(degrees: usize, x: f64) -> f64 {
    let y = x / 2.0;
    let (mut a, mut q) =
        if degrees % 2 == 1 { (0.5, libm::erfc(y.sqrt())) } else { (1.0, (-y).exp()) };
    while a < degrees as f64 / 2.0 {
        q += (a * y.ln() - y - libm::lgamma(a + 1.0)).exp();
        a += 1.0;
    }
    q
}

/// Panics unless the survival probability of `statistic` lies between 5e-7 and 1 - 5e-7.
pub(crate) fn assert_chi_squared(statistic: f64, degrees: usize) {
    let probability = survival(degrees, statistic);
    assert!(
        (5e-7..=1.0 - 5e-7).contains(&probability),
        "chi-squared of {statistic} with {degrees} degrees of freedom is exceeded with probability \
         {probability:e}"
    );
}

/// Panics unless all of at most 5,000 standard normal values are within ±6.4: a larger one among
/// 5,000 has a probability of 8e-7.
pub(crate) fn assert_standard_normal(values: &[f64]) {
    assert!(!values.is_empty() && values.len() <= 5000);
    for (i, z) in values.iter().enumerate() {
        assert!(z.abs() <= 6.4, "value {i} is {z} standard deviations from its mean");
    }
}

#[test]
fn survival_probabilities_equal_the_tables() {
    for (degrees, x, probability) in [
        (1, 3.841_459, 0.05),
        (2, 13.815_511, 0.001),
        (10, 29.588_298, 0.001),
        (100, 149.449_253, 0.001),
    ] {
        let relative = survival(degrees, x) / probability - 1.0;
        assert!(relative.abs() < 1e-6, "{degrees} degrees: {relative}");
    }
}

#[test]
#[should_panic(expected = "is exceeded with probability 1e0")]
fn a_perfect_fit_is_refused() {
    assert_chi_squared(1e-6, 20);
}

#[test]
#[should_panic(expected = "is exceeded with probability")]
fn a_bad_fit_is_refused() {
    assert_chi_squared(70.0, 20);
}
