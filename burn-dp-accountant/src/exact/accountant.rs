//! The accountant for the exact value.

use super::inversion::{Exact, Patience, TOLERANCE, delta_of_direction, epsilon_of_direction};
use crate::budget::{check_delta, check_epsilon};
use crate::mechanism::{Direction, Lowered, lower};
use crate::saddle::Cumulants;
use crate::{AccountantError, DpEvent, NeighboringRelation};

/// Exact ε and δ by numerical inversion of the moment generating function of the privacy loss, in
/// about a millisecond and independent of the number of steps; up to seconds where few rare losses
/// decide. The error is estimated with a second contour, not proven: use [`PldAccountant`](crate::PldAccountant) for a certified bracket.
///
/// # References
///
/// "Optimal Accounting of Differential Privacy via Characteristic Function", Zhu, Dong, Wang 2022;
/// "The Saddle-Point Method in Differential Privacy", Alghamdi et al. 2023.
#[derive(Debug, Clone)]
pub struct ExactAccountant {
    lowered: Lowered,
    patience: Patience,
}

impl ExactAccountant {
    /// The accountant of these events, each released `count` times.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Unsupported`] if one event has no dominating pair, or one that real data
    /// sets do not attain (there is no exact value then), or is not analytic.
    pub fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let lowered = lower(events, relation)?;
        if lowered.loose || lowered.total_variation > 0.0 {
            return Err(AccountantError::unsupported(
                "these events",
                "only bounds are known, no exact value; use PldAccountant",
            ));
        }
        Ok(Self { lowered, patience: Patience::Thorough })
    }

    pub(crate) fn of(lowered: Lowered, patience: Patience) -> Self {
        Self { lowered, patience }
    }

    /// ε at `delta`: exact within 1e-9 relative, by the estimate of a second contour. Rounded to
    /// nearest, so not a bound.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Numerical`] where the integrand decays too slowly (a few steps with a tiny
    /// sampling probability): use [`PldAccountant`](crate::PldAccountant).
    pub fn epsilon(&self, delta: f64) -> Result<f64, AccountantError> {
        check_delta(delta)?;
        if self.lowered.infinite.is_some() {
            return Ok(f64::INFINITY);
        }
        let left = delta - self.lowered.mass_at_infinity;
        if left <= 0.0 {
            return Ok(f64::INFINITY);
        }
        let parts = &self.lowered.parts;
        self.largest(|direction, known| {
            // Chernoff's bound may already show that the other direction decides.
            if direction == Direction::Add && known > 0.0 {
                let tail = 1e-9 * left / parts.iter().map(|(_, n)| *n as f64).sum::<f64>();
                let mut cumulants = Cumulants::new(parts, direction, tail);
                if let Some(saddle) = cumulants.saddle(left)
                    && cumulants.chernoff(saddle.theta, left * (1.0 - 1e-6)) <= known
                {
                    return Some(Exact { value: 0.0, relative_error: 0.0 });
                }
            }
            epsilon_of_direction(parts, direction, left, self.patience)
        })
    }

    /// δ at `epsilon`: exact within 1e-9 relative, by the estimate of a second contour.
    ///
    /// # Errors
    ///
    /// As [`epsilon`](Self::epsilon).
    pub fn delta(&self, epsilon: f64) -> Result<f64, AccountantError> {
        check_epsilon(epsilon)?;
        if self.lowered.infinite.is_some() {
            return Ok(1.0);
        }
        let own = self.largest(|direction, _| {
            if crate::pld::largest_loss(&self.lowered.parts, direction) <= epsilon {
                return Some(Exact { value: 0.0, relative_error: 0.0 });
            }
            delta_of_direction(&self.lowered.parts, direction, epsilon, self.patience)
        })?;
        Ok((own + self.lowered.mass_at_infinity).min(1.0))
    }

    fn largest(
        &self,
        value: impl Fn(Direction, f64) -> Option<Exact>,
    ) -> Result<f64, AccountantError> {
        let mut largest = 0.0f64;
        if self.lowered.parts.is_empty() {
            return Ok(largest);
        }
        for direction in crate::pld::directions(&self.lowered.parts) {
            match value(direction, largest) {
                Some(exact) if exact.relative_error <= TOLERANCE => {
                    largest = largest.max(exact.value);
                }
                // A direction whose loss is bounded below what the other one gives cannot decide.
                _ if crate::pld::largest_loss(&self.lowered.parts, direction) <= largest => {}
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
