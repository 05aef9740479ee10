//! Checks of arguments.

use crate::AccountantError;

/// Checks `0 <= delta < 1`.
pub(super) fn check_delta(delta: f64) -> Result<(), AccountantError> {
    if (0.0..1.0).contains(&delta) {
        return Ok(());
    }
    let reason = format!("must be at least 0 and less than 1, got {delta}");
    Err(AccountantError::invalid("delta", reason))
}

/// Checks `0 < significance < 1/2`.
pub(super) fn check_significance(significance: f64) -> Result<(), AccountantError> {
    if significance > 0.0 && significance < 0.5 {
        return Ok(());
    }
    let reason = format!("must be greater than 0 and less than 1/2, got {significance}");
    Err(AccountantError::invalid("significance", reason))
}
