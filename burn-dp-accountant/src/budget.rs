//! The privacy budget and the domains of its two numbers.

use serde::{Deserialize, Serialize};

use crate::AccountantError;

/// A target `(ε, δ)`: what a training may spend.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Budget {
    epsilon: f64,
    delta: f64,
}

/// The serialised form, which is checked when it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    epsilon: f64,
    delta: f64,
}

impl TryFrom<Written> for Budget {
    type Error = AccountantError;

    fn try_from(written: Written) -> Result<Self, AccountantError> {
        Self::new(written.epsilon, written.delta)
    }
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
    if (f64::MIN_POSITIVE..1.0).contains(&delta) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_impossible_budget_is_refused_also_from_json() {
        for (epsilon, delta) in [(0.0, 1e-5), (f64::NAN, 1e-5), (1.0, 0.0), (1.0, 1.0)] {
            assert!(Budget::new(epsilon, delta).is_err(), "{epsilon} {delta}");
        }
        assert!(serde_json::from_str::<Budget>(r#"{"epsilon": -1.0, "delta": 1e-5}"#).is_err());
        let budget = Budget::new(2.0, 1e-6).unwrap();
        let text = serde_json::to_string(&budget).unwrap();
        assert_eq!(serde_json::from_str::<Budget>(&text).unwrap(), budget);
    }
}
