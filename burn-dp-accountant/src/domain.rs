//! Checks of the domains of arguments.

use crate::error::AccountantError;

/// Checks `0 < delta < 1`. Subnormal numbers are also rejected, because their logarithm is
/// inaccurate.
pub(crate) fn check_delta(delta: f64) -> Result<(), AccountantError> {
    if (f64::MIN_POSITIVE..1.0).contains(&delta) {
        Ok(())
    } else {
        Err(AccountantError::invalid(
            "delta",
            format!("must be between 0 and 1 (exclusive), usually far below 1/N, got {delta}"),
        ))
    }
}

/// Checks that ε is finite and not negative.
pub(crate) fn check_epsilon(epsilon: f64) -> Result<(), AccountantError> {
    if epsilon >= 0.0 && epsilon.is_finite() {
        Ok(())
    } else {
        Err(AccountantError::invalid(
            "epsilon",
            format!("must be finite and not negative, got {epsilon}"),
        ))
    }
}

/// Checks that a number is positive and finite.
pub(crate) fn check_positive(name: &'static str, value: f64) -> Result<(), AccountantError> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(AccountantError::invalid(name, format!("must be positive and finite, got {value}")))
    }
}

/// Checks `0 <= value <= 1`.
pub(crate) fn check_probability(name: &'static str, value: f64) -> Result<(), AccountantError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(AccountantError::invalid(name, format!("must be between 0 and 1, got {value}")))
    }
}

/// Checks that a count is at least 1.
pub(crate) fn check_count(name: &'static str, value: u64) -> Result<(), AccountantError> {
    if value > 0 {
        Ok(())
    } else {
        Err(AccountantError::invalid(name, "must be at least 1, got 0"))
    }
}
