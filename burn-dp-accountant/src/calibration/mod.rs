//! Calibration: the parameter that meets a privacy budget.

mod search;

pub(crate) use search::largest_count;
use search::smallest;

use crate::analysis::{epsilon_with_simulation, exact_guide, quick_epsilon};
use crate::budget::Budget;
use crate::domain::check_count;
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::monte_carlo::Simulation;
use crate::relation::NeighboringRelation;
use crate::rounded::Rounded;

/// Relative tolerance of calibrated real parameters: the returned value is on the safe side, and a
/// value that is better by more than this would break the budget.
pub const CALIBRATION_TOLERANCE: f64 = 1e-6;

/// Tolerance of a search with simulated answers, each of which takes seconds.
const SIMULATION_TOLERANCE: f64 = 1e-3;

/// Range of the search for a noise multiplier.
const NOISE_RANGE: (f64, f64) = (1e-3, 1e7);

/// Returns the smallest noise multiplier with which `steps` releases of `event(noise_multiplier)`
/// meet the budget under add-or-remove-one.
///
/// It is rounded up (more noise) by at most [`CALIBRATION_TOLERANCE`], relative. The ε that it is
/// based on is an upper bound.
///
/// # Errors
///
/// Returns [`AccountantError::Infeasible`] if no multiplier up to `1e7` meets the budget (for
/// instance because the event has an additive δ), [`AccountantError::InvalidArgument`] if `steps`
/// is 0 or the event has a parameter outside its domain, and [`AccountantError::Unsupported`] if
/// the event cannot be analyzed.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::{Budget, DpEvent, calibrate_noise_multiplier};
///
/// let budget = Budget::new(3.0, 1e-5)?;
/// let step = |sigma| DpEvent::dp_sgd_step(0.01, sigma);
/// let sigma = calibrate_noise_multiplier(budget, 10_000, step)?;
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

/// A search for the parameter that meets a privacy budget, under any neighboring relation.
#[derive(Debug, Clone, Copy)]
pub struct Calibration {
    target: Budget,
    relation: NeighboringRelation,
    tolerance: f64,
    simulation: Option<Simulation>,
}

impl Calibration {
    /// Creates a search under add-or-remove-one with [`CALIBRATION_TOLERANCE`].
    pub fn new(target: Budget) -> Self {
        Self {
            target,
            relation: NeighboringRelation::AddOrRemoveOne,
            tolerance: CALIBRATION_TOLERANCE,
            simulation: None,
        }
    }

    /// Sets the neighboring relation.
    pub fn with_relation(mut self, relation: NeighboringRelation) -> Self {
        self.relation = relation;
        self
    }

    /// Sets the relative tolerance of the result, at least 1e-12.
    pub fn with_tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = if tolerance > 1e-12 { tolerance } else { 1e-12 };
        self
    }

    /// Lets ε be bounded by simulation, as in a ledger with the same simulation; `None` for only
    /// certified answers. Where something is simulated, the relative tolerance is at least 1e-3.
    pub fn with_simulation(mut self, simulation: impl Into<Option<Simulation>>) -> Self {
        self.simulation = simulation.into();
        self
    }

    fn upper(&self, event: &DpEvent, steps: u64) -> Result<f64, AccountantError> {
        self.upper_of(&[(event, steps)])
    }

    fn upper_of(&self, events: &[(&DpEvent, u64)]) -> Result<f64, AccountantError> {
        let (target, simulation) = (self.target, self.simulation.as_ref());
        let (delta, enough) = (target.delta(), target.epsilon());
        let events = events.iter().copied();
        Ok(epsilon_with_simulation(events, self.relation, delta, simulation, enough)?.upper)
    }

    fn quick(&self, event: &DpEvent, steps: u64) -> Option<f64> {
        self.quick_of(&[(event, steps)])
    }

    fn exact_of(&self, events: &[(&DpEvent, u64)]) -> Option<f64> {
        exact_guide(events, self.relation, self.target.delta(), self.simulation.as_ref())
    }

    fn quick_of(&self, events: &[(&DpEvent, u64)]) -> Option<f64> {
        quick_epsilon(events, self.relation, self.target.delta(), self.simulation.as_ref())
    }

    /// Returns the tolerance of a search among events like this one.
    fn tolerance_of(&self, event: &DpEvent) -> f64 {
        self.tolerance_of_all(&[(event, 1)])
    }

    fn tolerance_of_all(&self, events: &[(&DpEvent, u64)]) -> f64 {
        match self.simulation {
            Some(_) if Simulation::applies(events.iter().copied(), self.relation) => {
                self.tolerance.max(SIMULATION_TOLERANCE)
            }
            _ => self.tolerance,
        }
    }

    /// Returns the smallest noise multiplier with which `steps` releases of
    /// `event(noise_multiplier)` meet the budget, rounded up.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if no multiplier up to `1e7` meets the budget,
    /// [`AccountantError::InvalidArgument`] if `steps` is 0 or the event has a parameter outside
    /// its domain, and [`AccountantError::Unsupported`] if the event cannot be analyzed.
    pub fn noise_multiplier(
        &self,
        steps: u64,
        event: impl Fn(f64) -> DpEvent,
    ) -> Result<f64, AccountantError> {
        self.noise_multiplier_after([], steps, event)
    }

    /// Returns the smallest noise multiplier with which `earlier`, the earlier releases on the same
    /// data, and then `steps` releases of `event(noise_multiplier)` meet the budget together,
    /// rounded up.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if the earlier releases alone spend the budget, and
    /// the errors of [`noise_multiplier`](Self::noise_multiplier).
    ///
    /// # Example
    ///
    /// ```
    /// use burn_dp_accountant::{
    ///     Budget, Calibration, DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger,
    ///     UnitOfPrivacy,
    /// };
    ///
    /// let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
    /// let mut before = PrivacyLedger::new(header);
    /// before.record(&DpEvent::gaussian(10.0))?; // a noisy mean, for example
    /// let calibration = Calibration::new(Budget::new(2.0, 1e-5)?);
    /// let step = |sigma| DpEvent::dp_sgd_step(0.01, sigma);
    /// let counted = before.entries().iter().map(|entry| (&entry.event, entry.count));
    /// let sigma = calibration.noise_multiplier_after(counted, 1_000, step)?;
    /// assert!(sigma > calibration.noise_multiplier(1_000, step)?);
    /// # Ok::<(), burn_dp_accountant::AccountantError>(())
    /// ```
    pub fn noise_multiplier_after<'a>(
        &self,
        earlier: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        steps: u64,
        event: impl Fn(f64) -> DpEvent,
    ) -> Result<f64, AccountantError> {
        if steps == 0 {
            return Err(AccountantError::invalid(
                "steps",
                "must be at least 1: nothing is released in 0 steps, so no noise is needed",
            ));
        }
        let before: Vec<(&DpEvent, u64)> = earlier.into_iter().collect();
        let spent = if before.is_empty() { 0.0 } else { self.upper_of(&before)? };
        if spent >= self.target.epsilon() {
            return Err(AccountantError::infeasible(format!(
                "the earlier releases alone cost epsilon = {} at delta = {:e}, and the budget for \
                 all is {}; give a larger budget",
                Rounded::up(spent),
                self.target.delta(),
                self.target.epsilon()
            )));
        }
        let upper = |sigma| self.upper_of(&followed(&before, &event(sigma), steps));
        let exact = |sigma| self.exact_of(&followed(&before, &event(sigma), steps));
        let quick = |sigma| self.quick_of(&followed(&before, &event(sigma), steps));
        let tolerance = self.tolerance_of_all(&followed(&before, &event(1.0), steps));
        let found = smallest(self.target.epsilon(), tolerance, NOISE_RANGE, upper, exact, quick);
        found.map_err(|error| match error {
            AccountantError::Infeasible { reason } => {
                let before = match spent {
                    0.0 => String::new(),
                    _ => format!(
                        "; the earlier releases alone cost epsilon = {}, so give a larger \
                         budget for all",
                        Rounded::up(spent)
                    ),
                };
                AccountantError::infeasible(format!(
                    "noise_multiplier for epsilon = {} at delta = {:e} in {steps} steps: \
                     {reason}{before}",
                    self.target.epsilon(),
                    self.target.delta()
                ))
            }
            other => other,
        })
    }

    /// Returns the largest number of releases of `event` within the budget: one more would break
    /// it. 0 if even one release is too much, `u64::MAX` if the event costs nothing. Above 2^40 the
    /// search ends: that many meet the budget, and more may. For a run with correlated noise, it is
    /// at most the number of its steps.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if the event has a parameter outside its
    /// domain, and [`AccountantError::Unsupported`] if the event cannot be analyzed.
    pub fn steps(&self, event: &DpEvent) -> Result<u64, AccountantError> {
        event.validate()?;
        let (epsilon, limit) = (self.target.epsilon(), event.remaining_steps());
        if self.simulation.is_some()
            && (1..u64::MAX).contains(&limit)
            && self.upper(event, limit)? <= epsilon
        {
            return Ok(limit);
        }
        largest_count(epsilon, limit, |n| self.upper(event, n), |n| self.quick(event, n))
    }

    /// Returns the largest sampling probability with which `steps` releases of `event(probability)`
    /// meet the budget, rounded down.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if even a probability of 1e-12 is too large,
    /// [`AccountantError::InvalidArgument`] if the event has a parameter outside its domain, and
    /// [`AccountantError::Unsupported`] if the event cannot be analyzed.
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
        let inverse = smallest(
            self.target.epsilon(),
            self.tolerance_of(&event(1.0)),
            (1.0, 1e12),
            |inverse| self.upper(&event(1.0 / inverse), steps),
            |inverse| self.exact_of(&[(&event(1.0 / inverse), steps)]),
            |inverse| self.quick(&event(1.0 / inverse), steps),
        )?;
        Ok(1.0 / inverse)
    }

    /// Returns the largest expected batch size out of `dataset_size` units with which `steps`
    /// releases of `event(batch_size / dataset_size)` meet the budget, rounded down to a whole
    /// number.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if not even a batch of one unit meets the budget,
    /// [`AccountantError::InvalidArgument`] if `dataset_size` is 0 or the event has a parameter
    /// outside its domain, and [`AccountantError::Unsupported`] if the event cannot be analyzed.
    pub fn expected_batch_size(
        &self,
        dataset_size: u64,
        steps: u64,
        event: impl Fn(f64) -> DpEvent,
    ) -> Result<u64, AccountantError> {
        check_count("dataset_size", dataset_size)?;
        let fits = |batch: u64| -> Result<bool, AccountantError> {
            let q = batch as f64 / dataset_size as f64;
            Ok(self.upper(&event(q), steps)? <= self.target.epsilon())
        };
        if !fits(1)? {
            return Err(AccountantError::infeasible(format!(
                "not even an expected batch of 1 out of {dataset_size} units meets epsilon = {}; \
                 use more noise or fewer steps",
                self.target.epsilon()
            )));
        }
        let (mut low, mut high) = (1, dataset_size.saturating_add(1));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if middle <= dataset_size && fits(middle)? { low = middle } else { high = middle }
        }
        Ok(low)
    }
}

/// Returns the events of `before` and then `steps` releases of `event`.
fn followed<'a>(
    before: &[(&'a DpEvent, u64)],
    event: &'a DpEvent,
    steps: u64,
) -> Vec<(&'a DpEvent, u64)> {
    before.iter().copied().chain([(event, steps)]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn upper(event: DpEvent, steps: u64, delta: f64) -> f64 {
        let relation = NeighboringRelation::AddOrRemoveOne;
        epsilon_with_simulation([(&event, steps)], relation, delta, None, 0.0).unwrap().upper
    }

    #[test]
    fn calibrated_noise_meets_the_budget_and_less_does_not() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let build = |sigma| DpEvent::dp_sgd_step(0.02, sigma);
        let sigma = calibrate_noise_multiplier(budget, 1_000, build).unwrap();
        assert!(upper(build(sigma), 1_000, 1e-5) <= 2.0);
        assert!(upper(build(sigma * (1.0 - 3e-6)), 1_000, 1e-5) > 2.0);
    }

    #[test]
    fn noise_after_earlier_releases_meets_the_budget_of_all() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let calibration = Calibration::new(budget);
        let (eight, two) = (DpEvent::gaussian(8.0), DpEvent::gaussian(2.0));
        // Gaussian releases have a closed form: 2/8² + 9/σ² is the square of the shift.
        let sigma =
            calibration.noise_multiplier_after([(&eight, 2)], 9, DpEvent::gaussian).unwrap();
        let shift = (2.0 / 64.0 + 9.0 / (sigma * sigma)).sqrt();
        let spent = crate::GaussianDp::new(shift).unwrap().epsilon(1e-5).unwrap();
        assert!((1.99999..=2.0).contains(&spent), "{spent}");
        let step = |sigma| DpEvent::dp_sgd_step(0.02, sigma);
        let alone = calibration.noise_multiplier(1_000, step).unwrap();
        assert_eq!(calibration.noise_multiplier_after([], 1_000, step).unwrap(), alone);
        let after = calibration.noise_multiplier_after([(&eight, 2)], 1_000, step).unwrap();
        let all = |sigma| {
            let (before, run) = (DpEvent::gaussian(8.0), step(sigma));
            let events = [(&before, 2), (&run, 1_000)];
            let relation = NeighboringRelation::AddOrRemoveOne;
            epsilon_with_simulation(events, relation, 1e-5, None, 0.0).unwrap().upper
        };
        assert!(after > alone && all(after) <= 2.0 && all(after * (1.0 - 3e-6)) > 2.0, "{after}");
        // Releases that leave almost nothing are also named.
        let mut almost = calibration.noise_multiplier(1, DpEvent::gaussian).unwrap();
        almost *= 1.0 + 1e-13;
        let first = DpEvent::gaussian(almost);
        let error = calibration.noise_multiplier_after([(&first, 1)], 9, step).unwrap_err();
        assert!(error.to_string().contains("the earlier releases alone cost epsilon"), "{error}");
        let error = calibration.noise_multiplier_after([(&two, 2)], 9, step).unwrap_err();
        assert!(
            error.to_string().contains("the earlier releases alone cost epsilon = "),
            "{error}"
        );
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
    fn infeasible_budget_is_an_error_that_names_the_target() {
        let budget = Budget::new(1.0, 1e-6).unwrap();
        let leaky = |_| DpEvent::EpsilonDelta { epsilon: 0.1, delta: 1e-3 };
        let error = calibrate_noise_multiplier(budget, 3, leaky).unwrap_err();
        assert!(error.to_string().contains("epsilon = 1"), "{error}");
        assert!(calibrate_noise_multiplier(budget, 0, DpEvent::gaussian).is_err());
        assert!(Budget::new(-1.0, 1e-5).is_err() && Budget::new(1.0, 1.0).is_err());
    }

    #[test]
    fn a_cheap_event_may_not_be_released_without_limit() {
        let calibration = Calibration::new(Budget::new(1.0, 1e-5).unwrap());
        let cheap = DpEvent::gaussian(1e7);
        let steps = calibration.steps(&cheap).unwrap();
        // The search ends above 2^40; the largest number is 7.185e12.
        assert!((1 << 40..7_190_000_000_000).contains(&steps), "{steps}");
        assert!(upper(cheap, steps, 1e-5) <= 1.0);
    }

    #[test]
    fn free_event_may_be_released_without_limit() {
        let calibration = Calibration::new(Budget::new(1.0, 1e-6).unwrap());
        assert_eq!(calibration.steps(&DpEvent::dp_sgd_step(0.0, 1.0)).unwrap(), u64::MAX);
    }

    #[test]
    fn calibrated_noise_of_one_release_is_its_closed_form() {
        let budget = Budget::new(1.0, 1e-5).unwrap();
        let of =
            |calibration: Calibration| calibration.noise_multiplier(1, DpEvent::gaussian).unwrap();
        // The root of the closed form of δ, by mpmath in 40 digits; twice the sensitivity needs
        // twice the noise.
        let truth = 3.730_631_634_815_942;
        let replaced = Calibration::new(budget).with_relation(NeighboringRelation::ReplaceOne);
        for (calibration, truth) in [(Calibration::new(budget), truth), (replaced, 2.0 * truth)] {
            let found = of(calibration);
            assert!(found >= truth && found <= truth * (1.0 + 2e-6), "{found}");
            for tolerance in [0.0, f64::NAN] {
                let found = of(calibration.with_tolerance(tolerance));
                assert!(found >= truth && found <= truth * (1.0 + 1e-9), "{found}");
            }
            let found = of(calibration.with_tolerance(0.1));
            assert!(found >= truth && found <= truth * 1.1, "{found}");
        }
    }

    #[test]
    fn searches_end_at_the_whole_data_set_and_below_one_unit() {
        let calibration = Calibration::new(Budget::new(1.0, 1e-5).unwrap());
        let strong = |q| DpEvent::dp_sgd_step(q, 100.0);
        assert_eq!(calibration.sampling_probability(10, strong).unwrap(), 1.0);
        assert_eq!(calibration.expected_batch_size(50, 10, strong).unwrap(), 50);
        let weak = |q| DpEvent::dp_sgd_step(q, 0.1);
        let error = calibration.expected_batch_size(50, 10, weak).unwrap_err().to_string();
        assert!(error.contains("not even an expected batch of 1 out of 50 units"), "{error}");
        assert!(calibration.expected_batch_size(0, 10, strong).is_err());
        let leaky = |_| DpEvent::EpsilonDelta { epsilon: 0.1, delta: 1e-3 };
        let error = calibration.sampling_probability(10, leaky).unwrap_err();
        assert!(matches!(error, AccountantError::Infeasible { .. }), "{error}");
        assert_eq!(calibration.steps(&DpEvent::gaussian(1.0)).unwrap(), 0);
        // 13 releases have the shift √13/σ: 3.7306² / 1.0² = 13.9.
        assert_eq!(calibration.steps(&DpEvent::gaussian(13.5)).unwrap(), 13);
    }
}
