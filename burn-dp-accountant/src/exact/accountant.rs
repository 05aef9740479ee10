//! The accountant of the exact value.

use super::inversion::{delta_of_direction, epsilon_of_direction};
use super::value::{Effort, ExactValue, TOLERANCE};
use crate::accountant::Accountant;
use crate::domain::{check_delta, check_epsilon};
use crate::dominating_pairs::{
    Direction, DominatingPairs, directions, dominating_pairs_of, largest_loss,
};
use crate::epsilon::{DeltaBracket, Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;
use crate::saddle::Cumulants;

/// Computes ε and δ to nine digits by numerical inversion of the moment generating function of the
/// privacy loss.
///
/// It takes about a millisecond, regardless of the number of steps, and up to seconds if a few rare
/// losses dominate. The value is the `estimate`. Its relative error is at most 1e-9 by comparison
/// of two contours, which is an estimate and not a proof. Therefore `lower` is 0 and `upper` is
/// infinite (δ: 1): use [`PldAccountant`](crate::PldAccountant) for a guarantee, or
/// [`PrivacyLedger::epsilon`](crate::PrivacyLedger::epsilon) for both.
///
/// Only events with an exact value are supported: fixed-size sampling, truncated Poisson sampling,
/// and (ε, δ) events only have bounds. [`Accountant::epsilon`] and [`Accountant::delta`] return
/// [`AccountantError::Numerical`] if the integrand decays too slowly, or a pair (such as Laplace)
/// has no analytic loss.
///
/// # References
///
/// "Optimal Accounting of Differential Privacy via Characteristic Function", Zhu, Dong, Wang 2022;
/// "The Saddle-Point Method in Differential Privacy", Alghamdi et al. 2023.
#[derive(Debug, Clone)]
pub struct ExactAccountant {
    pairs: DominatingPairs,
    effort: Effort,
}

impl ExactAccountant {
    /// Creates the accountant of pairs that real data sets attain.
    pub(crate) fn of(pairs: DominatingPairs, effort: Effort) -> Self {
        Self { pairs, effort }
    }

    /// Returns the exact ε at `delta`, rounded to nearest; infinite if the events reveal more than
    /// `delta` allows.
    pub(crate) fn epsilon_value(&self, delta: f64) -> Result<f64, AccountantError> {
        check_delta(delta)?;
        if self.pairs.infinite.is_some() {
            return Ok(f64::INFINITY);
        }
        let left = delta - self.pairs.mass_at_infinity;
        if left <= 0.0 {
            return Ok(f64::INFINITY);
        }
        let parts = &self.pairs.parts;
        self.largest(|direction, known| {
            // Chernoff's bound may already show that the other direction decides.
            if direction == Direction::Add && known > 0.0 {
                let tail = 1e-9 * left / parts.iter().map(|(_, n)| *n as f64).sum::<f64>();
                let mut cumulants = Cumulants::new(parts, direction, tail);
                if let Some(saddle) = cumulants.saddle(left)
                    && cumulants.chernoff(saddle.theta, left * (1.0 - 1e-6)) <= known
                {
                    return Some(ExactValue { value: 0.0, relative_error: 0.0 });
                }
            }
            epsilon_of_direction(parts, direction, left, self.effort)
        })
    }

    fn delta_value(&self, epsilon: f64) -> Result<f64, AccountantError> {
        let own = self.largest(|direction, _| {
            if largest_loss(&self.pairs.parts, direction) <= epsilon {
                return Some(ExactValue { value: 0.0, relative_error: 0.0 });
            }
            delta_of_direction(&self.pairs.parts, direction, epsilon, self.effort)
        })?;
        Ok((own + self.pairs.mass_at_infinity).min(1.0))
    }

    /// Returns the larger value of both directions.
    fn largest(
        &self,
        value: impl Fn(Direction, f64) -> Option<ExactValue>,
    ) -> Result<f64, AccountantError> {
        let mut largest = 0.0f64;
        if self.pairs.parts.is_empty() {
            return Ok(largest);
        }
        for direction in directions(&self.pairs.parts) {
            match value(direction, largest) {
                Some(exact) if exact.relative_error <= TOLERANCE => {
                    largest = largest.max(exact.value);
                }
                // A direction cannot decide if its largest loss is below the other's ε.
                _ if largest_loss(&self.pairs.parts, direction) <= largest => {}
                Some(exact) => {
                    return Err(AccountantError::numerical(format!(
                        "two contours differ by {:.1e}; use PldAccountant",
                        exact.relative_error
                    )));
                }
                None => {
                    return Err(AccountantError::numerical(
                        "the integrand decays too slowly; use PldAccountant",
                    ));
                }
            }
        }
        Ok(largest)
    }
}

/// The note of every finite answer.
const NOT_CERTIFIED: &str = "the estimate has nine correct digits by comparison of two contours, \
                             not by proof; PldAccountant gives a guarantee";

impl Accountant for ExactAccountant {
    fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let pairs = dominating_pairs_of(events, relation)?;
        if pairs.loose || pairs.total_variation > 0.0 {
            return Err(AccountantError::unsupported(
                "these events",
                "only bounds are known, no exact value; use PldAccountant",
            ));
        }
        Ok(Self { pairs, effort: Effort::Thorough })
    }

    /// Returns the exact ε at `delta` as `estimate`; `upper` is infinite, because the accuracy is
    /// not proven.
    fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        let estimate = self.epsilon_value(delta)?;
        let note = match &self.pairs.infinite {
            Some(reason) => reason.clone(),
            None if estimate.is_infinite() => {
                "the events' own δ already exceeds the target δ".to_string()
            }
            None => NOT_CERTIFIED.to_string(),
        };
        let mut epsilon = Epsilon::infinite(delta, Method::Inversion, note);
        epsilon.estimate = estimate;
        Ok(epsilon)
    }

    /// Returns the exact δ at `epsilon` as `estimate`; `upper` is 1, because the accuracy is not
    /// proven.
    fn delta(&self, epsilon: f64) -> Result<DeltaBracket, AccountantError> {
        check_epsilon(epsilon)?;
        if let Some(reason) = &self.pairs.infinite {
            return Ok(DeltaBracket::unknown(epsilon, reason.clone()));
        }
        let mut delta = DeltaBracket::unknown(epsilon, NOT_CERTIFIED);
        delta.estimate = self.delta_value(epsilon)?;
        Ok(delta)
    }
}
