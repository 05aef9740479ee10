//! The parameter that meets a budget.

use crate::analysis::{epsilon_of_events, quick_epsilon};
use crate::{AccountantError, Budget, DpEvent, NeighboringRelation};

/// Relative tolerance of calibrated real parameters: the returned value is on the safe side, and one
/// that is better by more than this would break the budget.
pub const CALIBRATION_TOLERANCE: f64 = 1e-6;

/// Widest range that is searched for a noise multiplier.
const NOISE_RANGE: (f64, f64) = (1e-3, 1e7);

/// The smallest noise multiplier with which `steps` releases of `event(noise_multiplier)` meet the
/// budget under add-or-remove-one. Rounded up (more noise), by at most
/// [`CALIBRATION_TOLERANCE`]; the ε that decides is always an upper bound.
///
/// # Errors
///
/// [`AccountantError::Infeasible`] if no multiplier up to `1e7` meets it (for instance because the
/// event has a δ of its own), and the errors of the analysis.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::{Budget, DpEvent, calibrate_noise_multiplier};
///
/// let budget = Budget::new(3.0, 1e-5)?;
/// let sigma = calibrate_noise_multiplier(budget, 10_000, |sigma| DpEvent::dp_sgd_step(0.01, sigma))?;
/// assert!(sigma > 1.0 && sigma < 2.0);
/// # Ok::<(), burn_dp_accountant::AccountantError>(())
/// ```
pub fn calibrate_noise_multiplier(
    target: Budget,
    steps: u64,
    event: impl Fn(f64) -> DpEvent,
) -> Result<f64, AccountantError> {
    Calibration::new(target).noise_multiplier(steps, event)
}

/// A search for the parameter that meets a budget, for any relation.
#[derive(Debug, Clone, Copy)]
pub struct Calibration {
    target: Budget,
    relation: NeighboringRelation,
    tolerance: f64,
}

impl Calibration {
    /// A search under add-or-remove-one with [`CALIBRATION_TOLERANCE`].
    pub fn new(target: Budget) -> Self {
        Self {
            target,
            relation: NeighboringRelation::AddOrRemoveOne,
            tolerance: CALIBRATION_TOLERANCE,
        }
    }

    /// Sets the neighbouring relation.
    pub fn with_relation(mut self, relation: NeighboringRelation) -> Self {
        self.relation = relation;
        self
    }

    /// Sets the relative tolerance of the result, at least 1e-12.
    pub fn with_tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = if tolerance > 1e-12 { tolerance } else { 1e-12 };
        self
    }

    fn upper(&self, event: &DpEvent, steps: u64) -> Result<f64, AccountantError> {
        Ok(epsilon_of_events([(event, steps)], self.relation, self.target.delta())?.upper)
    }

    fn quick(&self, event: &DpEvent, steps: u64) -> Option<f64> {
        quick_epsilon(&[(event, steps)], self.relation, self.target.delta())
    }

    /// The smallest noise multiplier, see [`calibrate_noise_multiplier`].
    ///
    /// # Errors
    ///
    /// As [`calibrate_noise_multiplier`].
    pub fn noise_multiplier(
        &self,
        steps: u64,
        event: impl Fn(f64) -> DpEvent,
    ) -> Result<f64, AccountantError> {
        if steps == 0 {
            return Err(AccountantError::invalid(
                "steps",
                "must be at least 1: nothing is released in 0 steps, so no noise is needed",
            ));
        }
        let upper = |sigma| self.upper(&event(sigma), steps);
        let quick = |sigma| self.quick(&event(sigma), steps);
        self.smallest(NOISE_RANGE, upper, quick).map_err(|error| match error {
            AccountantError::Infeasible { reason } => AccountantError::infeasible(format!(
                "noise_multiplier for epsilon = {} at delta = {:e} in {steps} steps: {reason}",
                self.target.epsilon(),
                self.target.delta()
            )),
            other => other,
        })
    }

    /// The largest number of releases of `event`. Rounded down, exactly: one more would break the
    /// budget. `u64::MAX` if the event costs nothing.
    ///
    /// # Errors
    ///
    /// The errors of the analysis. 0 is a valid answer.
    pub fn steps(&self, event: &DpEvent) -> Result<u64, AccountantError> {
        event.validate()?;
        largest_count(self.target, |n| self.upper(event, n), |n| self.quick(event, n))
    }

    /// The largest sampling probability with which `steps` releases of `event(probability)` meet the
    /// budget. Rounded down.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Infeasible`] if even a probability of 1e-12 is too much.
    pub fn sampling_probability(
        &self,
        steps: u64,
        event: impl Fn(f64) -> DpEvent,
    ) -> Result<f64, AccountantError> {
        // The smallest "1/q" is the largest q.
        let whole = self.upper(&event(1.0), steps)?;
        if whole <= self.target.epsilon() {
            return Ok(1.0);
        }
        let inverse = self.smallest(
            (1.0, 1e12),
            |inverse| self.upper(&event(1.0 / inverse), steps),
            |inverse| self.quick(&event(1.0 / inverse), steps),
        )?;
        Ok(1.0 / inverse)
    }

    /// The largest expected batch size out of `dataset_size` units, see
    /// [`sampling_probability`](Self::sampling_probability). Rounded down to a whole number.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Infeasible`] if not even a batch of one unit meets the budget.
    pub fn expected_batch_size(
        &self,
        dataset_size: u64,
        steps: u64,
        event: impl Fn(f64) -> DpEvent,
    ) -> Result<u64, AccountantError> {
        if dataset_size == 0 {
            return Err(AccountantError::invalid("dataset_size", "must be at least 1, got 0"));
        }
        let fits = |batch: u64| -> Result<bool, AccountantError> {
            let q = batch as f64 / dataset_size as f64;
            Ok(self.upper(&event(q), steps)? <= self.target.epsilon())
        };
        if !fits(1)? {
            return Err(AccountantError::infeasible(format!(
                "not even an expected batch of 1 out of {dataset_size} units meets epsilon = {}; use more noise or fewer steps",
                self.target.epsilon()
            )));
        }
        let (mut low, mut high) = (1, dataset_size + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if middle <= dataset_size && fits(middle)? { low = middle } else { high = middle }
        }
        Ok(low)
    }

    /// The smallest `x` in the range with `upper(x) <= ε`, for an `upper` that decreases; rounded
    /// up. `upper` at the returned value was evaluated and meets the target.
    ///
    /// `quick` is close to `upper` and cheap: the search runs on it, for a target lowered by the
    /// ratio of the two, until `upper` is just below the target.
    fn smallest(
        &self,
        range: (f64, f64),
        upper: impl Fn(f64) -> Result<f64, AccountantError>,
        quick: impl Fn(f64) -> Option<f64>,
    ) -> Result<f64, AccountantError> {
        let target = self.target.epsilon();
        let mut aim = target;
        for _ in 0..6 {
            let quick =
                |x: f64| quick(x).ok_or_else(|| AccountantError::numerical("no quick value"));
            let Ok(x) = self.search(range, aim, 0.1 * self.tolerance, quick) else { break };
            let value = upper(x)?;
            if value <= target && (value >= target * (1.0 - self.tolerance) || x <= range.0) {
                return Ok(x);
            }
            if !value.is_finite() || value <= 0.0 {
                break;
            }
            aim *= target * (1.0 - 0.5 * self.tolerance) / value;
        }
        self.search(range, target, self.tolerance, upper)
    }

    fn search(
        &self,
        range: (f64, f64),
        target: f64,
        tolerance: f64,
        upper: impl Fn(f64) -> Result<f64, AccountantError>,
    ) -> Result<f64, AccountantError> {
        let mut high = 1.0f64.max(range.0);
        let mut low = high;
        let mut value_high = upper(high)?;
        let mut value_low = value_high;
        while value_high > target {
            (low, value_low) = (high, value_high);
            if high >= range.1 {
                return Err(AccountantError::infeasible(format!(
                    "at {high} epsilon is still {value_high}"
                )));
            }
            high = (high * 2.0).min(range.1);
            value_high = upper(high)?;
        }
        while value_low <= target {
            (high, value_high) = (low, value_low);
            if low <= range.0 {
                return Ok(range.0);
            }
            low = (low / 2.0).max(range.0);
            value_low = upper(low)?;
        }
        // ε is close to a power of x: secant steps on logarithms, guarded by bisection.
        let gap = |value: f64| {
            if value.is_finite() && value > 0.0 {
                (value / target).ln()
            } else if value > 0.0 {
                700.0
            } else {
                -700.0
            }
        };
        let (mut gap_low, mut gap_high) = (gap(value_low), gap(value_high));
        let mut iteration = 0;
        while high / low - 1.0 > tolerance {
            let (ln_low, ln_high) = (low.ln(), high.ln());
            let margin = 0.4 * tolerance;
            let mut t = (ln_low * gap_high - ln_high * gap_low) / (gap_high - gap_low);
            // Slightly to the safe side: the bracket then closes from the other end.
            t += margin;
            if iteration % 4 == 3 || !(t > ln_low && t < ln_high) {
                t = 0.5 * (ln_low + ln_high);
            }
            let x = t.exp();
            if x <= low || x >= high {
                break;
            }
            let value = gap(upper(x)?);
            if value > 0.0 {
                (low, gap_low) = (x, value);
                if iteration % 2 == 1 {
                    gap_high *= 0.5;
                }
            } else {
                (high, gap_high) = (x, value.min(-1e-300));
                if iteration % 2 == 1 {
                    gap_low *= 0.5;
                }
            }
            iteration += 1;
            if iteration > 200 {
                break;
            }
        }
        Ok(high)
    }
}

/// The largest `n` with `upper(n) <= ε`, for an `upper` that does not decrease; `quick` is never
/// above it and close to it.
pub(crate) fn largest_count(
    budget: Budget,
    upper: impl Fn(u64) -> Result<f64, AccountantError>,
    quick: impl Fn(u64) -> Option<f64>,
) -> Result<u64, AccountantError> {
    let target = budget.epsilon();
    let fits = |n: u64| -> Result<bool, AccountantError> { Ok(upper(n)? <= target) };
    let quickly = |n: u64, share: f64| -> Result<bool, AccountantError> {
        match quick(n) {
            Some(value) => Ok(value <= share * target),
            None => fits(n),
        }
    };
    if !fits(1)? {
        return Ok(0);
    }
    let (low, high) = last_that_fits(1, 2, |n| quickly(n, 0.9998))?;
    // The quick value is below the bound, so what it refuses is refused; what it accepts with a
    // margin is checked.
    let (low, high) = if fits(low)? {
        if high == u64::MAX {
            return Ok(u64::MAX);
        }
        last_that_fits(low, high.saturating_add(low / 1_000).max(low + 1), fits)?
    } else {
        last_that_fits(1, 2, fits)?
    };
    Ok(if high == u64::MAX { u64::MAX } else { low })
}

/// The last `n >= low` that fits, and the next one; `low` is known to fit. `high` is where to look
/// first. `(_, u64::MAX)` if there is no end.
fn last_that_fits(
    mut low: u64,
    mut high: u64,
    fits: impl Fn(u64) -> Result<bool, AccountantError>,
) -> Result<(u64, u64), AccountantError> {
    /// Beyond this many releases the search stops: no training gets there.
    const LIMIT: u64 = 1 << 40;
    while fits(high)? {
        low = high;
        if high >= LIMIT {
            return Ok((low, u64::MAX));
        }
        high = high.saturating_mul(2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok((low, high))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn upper(event: DpEvent, steps: u64, delta: f64) -> f64 {
        epsilon_of_events([(&event, steps)], NeighboringRelation::AddOrRemoveOne, delta)
            .unwrap()
            .upper
    }

    #[test]
    fn the_calibrated_noise_meets_the_budget_and_less_noise_does_not() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let build = |sigma| DpEvent::dp_sgd_step(0.02, sigma);
        let sigma = calibrate_noise_multiplier(budget, 1_000, build).unwrap();
        assert!(upper(build(sigma), 1_000, 1e-5) <= 2.0);
        assert!(upper(build(sigma * (1.0 - 3e-6)), 1_000, 1e-5) > 2.0);
    }

    #[test]
    fn steps_and_probability_round_to_the_safe_side() {
        let calibration = Calibration::new(Budget::new(1.0, 1e-6).unwrap());
        let step = DpEvent::dp_sgd_step(0.01, 1.2);
        let steps = calibration.steps(&step).unwrap();
        assert!(upper(step.clone(), steps, 1e-6) <= 1.0 && upper(step, steps + 1, 1e-6) > 1.0);
        let build = |q| DpEvent::dp_sgd_step(q, 1.2);
        let q = calibration.sampling_probability(500, build).unwrap();
        assert!(
            upper(build(q), 500, 1e-6) <= 1.0 && upper(build(q * (1.0 + 3e-6)), 500, 1e-6) > 1.0
        );
        let batch = calibration.expected_batch_size(10_000, 500, build).unwrap();
        assert_eq!(batch, (q * 10_000.0).floor() as u64);
    }

    #[test]
    fn what_cannot_be_met_is_an_error_that_names_the_target() {
        let budget = Budget::new(1.0, 1e-6).unwrap();
        let leaky = |_| DpEvent::EpsilonDelta { epsilon: 0.1, delta: 1e-3 };
        let error = calibrate_noise_multiplier(budget, 3, leaky).unwrap_err();
        assert!(error.to_string().contains("epsilon = 1"), "{error}");
        assert!(calibrate_noise_multiplier(budget, 0, DpEvent::gaussian).is_err());
        assert!(Budget::new(-1.0, 1e-5).is_err() && Budget::new(1.0, 1.0).is_err());
    }

    #[test]
    fn an_event_that_costs_nothing_may_be_released_for_ever() {
        let calibration = Calibration::new(Budget::new(1.0, 1e-6).unwrap());
        assert_eq!(calibration.steps(&DpEvent::dp_sgd_step(0.0, 1.0)).unwrap(), u64::MAX);
    }
}
