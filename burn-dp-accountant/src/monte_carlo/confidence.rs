//! Confidence bounds on means in `[0, 1]`, from the Chernoff bound with the relative entropy.

use crate::domain::{check_count, check_delta};
use crate::error::AccountantError;

/// Returns an error unless the probability that a bound fails is between 0 and 1.
pub(super) fn check_failure_probability(probability: f64) -> Result<(), AccountantError> {
    if probability > 0.0 && probability < 1.0 {
        return Ok(());
    }
    Err(AccountantError::invalid(
        "failure_probability",
        format!("must be between 0 and 1 (exclusive), far below δ, got {probability}"),
    ))
}

/// Returns `p ln(p/q) + (1-p) ln((1-p)/(1-q))`.
fn relative_entropy(p: f64, q: f64) -> f64 {
    let term = |p: f64, q: f64| if p > 0.0 { p * (p / q).ln() } else { 0.0 };
    term(p, q) + term(1.0 - p, 1.0 - q)
}

/// Returns an upper bound on the expectation of independent numbers in `[0, 1]` with this mean; it
/// fails with probability at most `e^-ln_confidence` (Hoeffding 1963, Theorem 1).
pub(super) fn upper_mean(mean: f64, samples: usize, ln_confidence: f64) -> f64 {
    // A bound on the rounding of the mean.
    let mean = (mean * (1.0 + 1e-9)).clamp(0.0, 1.0);
    let limit = ln_confidence / samples as f64;
    let (mut low, mut high) = (mean, 1.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if relative_entropy(mean, middle) < limit {
            low = middle
        } else {
            high = middle
        }
        if high - low <= 1e-13 * high {
            break;
        }
    }
    high
}

/// Returns the δ of a mechanism that is released only if the mean of `samples` independent numbers
/// in `[0, 1]`, whose expectation is its δ at ε, is at most `base_delta`; with the probability that
/// a worse mechanism passes.
///
/// # Errors
///
/// Returns [`AccountantError::InvalidArgument`] if `base_delta` is not between 0 and 1 or `samples`
/// is 0.
///
/// # References
///
/// "A Randomized Approach for Tight Privacy Accounting", Wang et al. 2023 (estimate, verify,
/// release).
pub fn verified_delta(base_delta: f64, samples: u64) -> Result<f64, AccountantError> {
    check_delta(base_delta)?;
    check_count("samples", samples)?;
    let value = |ln_excess: f64| {
        let claimed = (base_delta * (1.0 + ln_excess.exp())).min(1.0);
        let ln_pass = -(samples as f64) * relative_entropy(base_delta, claimed.min(1.0 - 1e-16));
        // A worse mechanism passes with this probability and may then reveal everything.
        let pass = ln_pass.exp();
        claimed * (1.0 - pass) + pass
    };
    // One minimum: the second term falls faster than exponentially.
    let (mut best, mut at) = (f64::INFINITY, 0.0);
    for k in -400..=400 {
        let ln_excess = 0.1 * f64::from(k);
        if value(ln_excess) < best {
            (best, at) = (value(ln_excess), ln_excess);
        }
    }
    let (mut low, mut high) = (at - 0.1, at + 0.1);
    for _ in 0..100 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if value(a) < value(b) { high = b } else { low = a }
    }
    Ok(value(0.5 * (low + high)).min(best).min(1.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn verification_has_its_golden_delta() {
        // `mc_overall_delta` of golden/sampler_accounting.json.
        for (samples, base, truth) in [
            (1_000, 1e-2, 0.027339682490446465),
            (10_000, 1e-3, 0.003115198767277914),
            (100_000, 1e-4, 0.000345611231412226),
            (1_000_000, 1e-5, 3.779775422944605e-05),
            (10_000_000, 1e-6, 4.092370060777968e-06),
        ] {
            let found = verified_delta(base, samples).unwrap();
            assert!((found / truth - 1.0).abs() < 1e-10, "{samples}: {found} {truth}");
        }
        assert!(verified_delta(0.0, 10).is_err() && verified_delta(0.1, 0).is_err());
    }

    #[test]
    fn bound_without_an_event_is_the_logarithm_over_the_samples() {
        let bound = upper_mean(0.0, 1_000_000, 20.0);
        assert!((bound / 2e-5 - 1.0).abs() < 1e-4, "{bound}");
        assert!(upper_mean(0.3, 1_000_000, 20.0) > 0.3 && upper_mean(1.0, 10, 1.0) <= 1.0);
    }
}
