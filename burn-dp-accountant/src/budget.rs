//! The privacy budget.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::check_delta;
use crate::error::AccountantError;

/// A privacy budget `(ε, δ)`: the maximum that a training run may spend.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Budget {
    epsilon: f64,
    delta: f64,
}

/// The serialized form, which is checked when it is read.
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

/// For example `epsilon = 3 at delta = 1e-5`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epsilon = {} at delta = {:e}", self.epsilon, self.delta)
    }
}

impl Budget {
    /// Creates a budget of `epsilon` at `delta`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `epsilon` is not positive and finite, or
    /// `delta` is not between 0 and 1.
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

    /// Returns the largest ε that may be spent.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// Returns the δ at which ε is computed.
    pub fn delta(&self) -> f64 {
        self.delta
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_budget_is_printed_with_its_delta() {
        assert_eq!(Budget::new(3.0, 1e-5).unwrap().to_string(), "epsilon = 3 at delta = 1e-5");
    }

    #[test]
    fn impossible_budget_is_refused_from_json_too() {
        for (epsilon, delta) in [(0.0, 1e-5), (f64::NAN, 1e-5), (1.0, 0.0), (1.0, 1.0)] {
            assert!(Budget::new(epsilon, delta).is_err(), "{epsilon} {delta}");
        }
        assert!(serde_json::from_str::<Budget>(r#"{"epsilon": -1.0, "delta": 1e-5}"#).is_err());
        let budget = Budget::new(2.0, 1e-6).unwrap();
        let text = serde_json::to_string(&budget).unwrap();
        assert_eq!(serde_json::from_str::<Budget>(&text).unwrap(), budget);
    }
}
