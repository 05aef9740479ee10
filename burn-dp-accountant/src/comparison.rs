//! The comparison of two guarantees.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::epsilon::Epsilon;

/// Which of two guarantees is stronger at one δ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stronger {
    /// The first: even its upper bound is below the lower bound of the second.
    First,
    /// The second: even its upper bound is below the lower bound of the first.
    Second,
    /// The first promises less ε, but the brackets overlap: its mechanism may be the weaker one.
    FirstByBound,
    /// The second promises less ε, but the brackets overlap.
    SecondByBound,
    /// Both promise the same, or nothing.
    Neither,
}

impl fmt::Display for Stronger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "the first is stronger",
            Self::Second => "the second is stronger",
            Self::FirstByBound => "the first has the smaller bound; the true values may be equal",
            Self::SecondByBound => "the second has the smaller bound; the true values may be equal",
            Self::Neither => "neither is stronger",
        })
    }
}

/// Two guarantees at one δ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The δ that both statements have.
    pub delta: f64,
    /// Upper bound of the first ε.
    pub first: f64,
    /// Upper bound of the second ε.
    pub second: f64,
    /// Which guarantee is stronger.
    pub stronger: Stronger,
}

impl Comparison {
    /// Compares two answers at one δ.
    pub(crate) fn of(first: &Epsilon, second: &Epsilon) -> Self {
        let stronger = if first.upper < second.lower {
            Stronger::First
        } else if second.upper < first.lower {
            Stronger::Second
        } else if first.upper < second.upper {
            Stronger::FirstByBound
        } else if second.upper < first.upper {
            Stronger::SecondByBound
        } else {
            Stronger::Neither
        };
        Self { delta: first.delta, first: first.upper, second: second.upper, stronger }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::DpEvent;
    use crate::ledger::{LedgerHeader, PrivacyLedger, UnitOfPrivacy};
    use crate::relation::NeighboringRelation;
    use crate::statement::PrivacyStatement;

    fn statement(sigma: f64, relation: NeighboringRelation, deltas: &[f64]) -> PrivacyStatement {
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        ledger.record_many(&DpEvent::dp_sgd_step(0.01, sigma), 100).unwrap();
        PrivacyStatement::from_ledger(&ledger, deltas).unwrap()
    }

    #[test]
    fn more_noise_is_stronger_and_equal_runs_are_equal() {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let weak = statement(1.0, relation, &[1e-5, 1e-6]);
        let strong = statement(2.0, relation, &[1e-6, 1e-7]);
        let found = weak.compare(&strong).unwrap();
        assert_eq!((found.len(), found[0].delta, found[0].stronger), (1, 1e-6, Stronger::Second));
        assert_eq!(strong.compare(&weak).unwrap()[0].stronger, Stronger::First);
        assert_eq!(weak.compare(&weak).unwrap()[0].stronger, Stronger::Neither);
    }

    #[test]
    fn overlapping_brackets_prove_no_order() {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let mut other = statement(1.0, relation, &[1e-5]);
        other.epsilons[0].upper *= 1.5;
        let one = statement(1.0, relation, &[1e-5]);
        assert_eq!(one.compare(&other).unwrap()[0].stronger, Stronger::FirstByBound);
        assert_eq!(other.compare(&one).unwrap()[0].stronger, Stronger::SecondByBound);
    }

    #[test]
    fn statements_of_different_terms_are_not_compared() {
        let one = statement(1.0, NeighboringRelation::AddOrRemoveOne, &[1e-5]);
        let replaced = statement(1.0, NeighboringRelation::ReplaceOne, &[1e-5]);
        let error = one.compare(&replaced).unwrap_err().to_string();
        assert!(error.starts_with("the statements cannot be compared: the neighboring"), "{error}");
        let other_delta = statement(1.0, NeighboringRelation::AddOrRemoveOne, &[1e-6]);
        assert!(one.compare(&other_delta).unwrap_err().to_string().contains("no δ"));
    }
}
