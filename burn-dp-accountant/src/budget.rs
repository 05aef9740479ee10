//! The privacy budget and the domains of its two numbers.

use serde::{Deserialize, Serialize};

use crate::AccountantError;

/// A target `(ε, δ)`: what a training may spend.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    epsilon: f64,
    delta: f64,
}

impl Budget {
    /// A budget of `epsilon` at `delta`.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] unless `epsilon` is positive and finite and
    /// `0 < delta < 1`.
    pub fn new(epsilon: f64, delta: f64) -> Result<Self, AccountantError> {
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return Err(AccountantError::invalid(
                "epsilon",
                format!("must be positive and finite, got {epsilon}"),
            ));
        }
        check_delta(delta)?;
        Ok(Self { epsilon, delta })
    }

    /// The largest ε that may be spent.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The δ at which ε is counted.
    pub fn delta(&self) -> f64 {
        self.delta
    }
}

/// `0 < delta < 1`, and not so small that its logarithm is meaningless.
pub(crate) fn check_delta(delta: f64) -> Result<(), AccountantError> {
    if delta > 0.0 && delta < 1.0 && delta >= f64::MIN_POSITIVE {
        Ok(())
    } else {
        Err(AccountantError::invalid(
            "delta",
            format!("must be between 0 and 1 (exclusive), usually far below 1/N, got {delta}"),
        ))
    }
}

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
