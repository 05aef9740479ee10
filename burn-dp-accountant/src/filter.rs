//! Privacy budgets for releases that are chosen adaptively.

use crate::accountant::Accountant;
use crate::budget::Budget;
use crate::domain::check_delta;
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::gdp::{GaussianDp, GdpAccountant};
use crate::rdp::{RdpAccountant, epsilon_from_rdp, rdp_of_event};
use crate::relation::NeighboringRelation;

/// Relative margin of sums, far above their rounding.
const ROUNDING: f64 = 1e-11;

/// A budget for releases whose parameters and number may depend on earlier outputs.
///
/// The composition theorems of the ledger cover releases that were fixed before the first one.
/// Where noise multipliers, sampling probabilities or the decision to stop follow from released
/// values, use a filter: it rejects a release that would exceed the budget, before the release
/// takes place. The admitted releases are `(ε, δ)`-differentially private, whatever the choices
/// were.
///
/// - [`renyi`](Self::renyi): all releases with a Rényi bound of one order that is fixed in advance.
///   If the sum of the divergences of the admitted releases never exceeds `B`, the whole is
///   `(α, B)`-Rényi private (Feldman and Zrnic 2021, Theorem 3.1; Lécuyer 2021). A divergence must
///   hold for every value of the earlier outputs, as it does for the events of a ledger. The order
///   must not depend on outputs.
/// - [`gaussian`](Self::gaussian): Gaussian releases without sampling. If the sum of `μ²` never
///   exceeds `B²`, the whole is `B`-Gaussian private (Smith and Thakurta 2022), which is tight.
///
/// A filter counts everything that is released, so create one for the whole lifetime of the data. A
/// run with correlated noise is counted as a whole, with
/// [`without_correlation`](DpEvent::without_correlation); its single steps are rejected.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::{Budget, DpEvent, NeighboringRelation, PrivacyFilter};
///
/// let budget = Budget::new(2.0, 1e-6)?;
/// let mut filter = PrivacyFilter::gaussian(budget, NeighboringRelation::AddOrRemoveOne)?;
/// let mut sigma = 10.0;
/// while filter.admit(&DpEvent::gaussian(sigma), 1).is_ok() {
///     // The release; then the next noise may depend on it.
///     sigma *= 0.9;
/// }
/// assert!(filter.remaining() < 0.5);
/// # Ok::<(), burn_dp_accountant::AccountantError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PrivacyFilter {
    budget: Budget,
    relation: NeighboringRelation,
    measure: Measure,
    most: f64,
    spent: f64,
}

/// The quantity that is added up.
#[derive(Debug, Clone, Copy)]
enum Measure {
    /// The Rényi divergence of this order.
    Renyi { order: f64 },
    /// `μ²`.
    SquaredShift,
}

impl Measure {
    fn cost(
        self,
        event: &DpEvent,
        count: u64,
        relation: NeighboringRelation,
    ) -> Result<f64, AccountantError> {
        // The cost of a run with correlated noise is not the sum of the costs of its steps.
        if let DpEvent::CorrelatedGaussian { .. } = event {
            return Err(AccountantError::unsupported(
                event.to_string(),
                "steps with correlated noise are not separate releases; count the whole run before \
                 its first step, as DpEvent::without_correlation(steps)",
            ));
        }
        let one = match self {
            Self::Renyi { order } => rdp_of_event(event, relation, order)?,
            Self::SquaredShift => GdpAccountant::new([(event, 1)], relation)?.mu().powi(2),
        };
        Ok(one * count as f64 * (1.0 + ROUNDING))
    }
}

impl PrivacyFilter {
    /// Creates a filter based on the Rényi divergence of `order`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `order` is not above 1, and
    /// [`AccountantError::Infeasible`] if the conversion alone exceeds the budget.
    pub fn renyi(
        budget: Budget,
        relation: NeighboringRelation,
        order: f64,
    ) -> Result<Self, AccountantError> {
        check_order(order)?;
        let conversion =
            (-1.0 / order).ln_1p() - (budget.delta().ln() + order.ln()) / (order - 1.0);
        let most = (budget.epsilon() - conversion) * (1.0 - ROUNDING) - ROUNDING;
        let measure = Measure::Renyi { order };
        if most.is_nan()
            || most <= 0.0
            || epsilon_from_rdp(order, most, budget.delta()) > budget.epsilon()
        {
            return Err(AccountantError::infeasible(format!(
                "order {order} costs epsilon = {conversion} at delta = {:e} before any release, of \
                 {}; use a larger order",
                budget.delta(),
                budget.epsilon()
            )));
        }
        Ok(Self { budget, relation, measure, most, spent: 0.0 })
    }

    /// Creates a filter based on the Rényi divergence of the best order for planned training. The
    /// releases may then differ from the plan.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if the plan has no Rényi bound, and the errors of
    /// [`renyi`](Self::renyi).
    pub fn for_plan<'a>(
        budget: Budget,
        relation: NeighboringRelation,
        plan: impl IntoIterator<Item = (&'a DpEvent, u64)>,
    ) -> Result<Self, AccountantError> {
        let planned = RdpAccountant::new(plan, relation)?.epsilon(budget.delta())?;
        let order = planned.order.ok_or_else(|| {
            AccountantError::invalid(
                "plan",
                "must have a finite Rényi bound; name an order instead",
            )
        })?;
        Self::renyi(budget, relation, order)
    }

    /// Creates a filter for Gaussian releases without sampling.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if no shift meets the budget.
    pub fn gaussian(
        budget: Budget,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let fits = |mu: f64| -> Result<bool, AccountantError> {
            Ok(GaussianDp::new(mu)?.epsilon(budget.delta())? <= budget.epsilon())
        };
        let (mut low, mut high) = (0.0, 1.0);
        while fits(high)? && high < 1e6 {
            high *= 2.0;
        }
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if fits(middle)? { low = middle } else { high = middle }
        }
        if low <= 0.0 {
            let reason = format!("no Gaussian release meets epsilon = {}", budget.epsilon());
            return Err(AccountantError::infeasible(reason));
        }
        let measure = Measure::SquaredShift;
        Ok(Self { budget, relation, measure, most: low * low, spent: 0.0 })
    }

    /// Admits `count` releases of `event`, which are then counted, or rejects all of them. Call it
    /// before the release; a rejection does not change the filter, so a cheaper release may follow.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::BudgetExceeded`] if the releases would exceed the budget,
    /// [`AccountantError::Unsupported`] if the filter cannot measure the event, and
    /// [`AccountantError::InvalidArgument`] if a parameter is outside its domain. After any of
    /// these errors, the release must not take place.
    pub fn admit(&mut self, event: &DpEvent, count: u64) -> Result<(), AccountantError> {
        event.validate()?;
        let cost = self.measure.cost(event, count, self.relation)?;
        let spent = (self.spent + cost) * (1.0 + f64::EPSILON);
        // NaN is rejected.
        if spent.is_nan() || spent > self.most {
            let reason = format!(
                "{count} x {event} would use {:.4} of the budget (epsilon = {}, delta = {:e}), of \
                 which {:.4} is used; use more noise, fewer releases, or stop",
                spent / self.most,
                self.budget.epsilon(),
                self.budget.delta(),
                self.spent / self.most
            );
            return Err(AccountantError::BudgetExceeded { reason });
        }
        if count > 0 {
            self.spent = spent;
        }
        Ok(())
    }

    /// Returns the guarantee of everything that was and will be admitted.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns the remaining share of the budget, from 0 to 1.
    pub fn remaining(&self) -> f64 {
        (1.0 - self.spent / self.most).clamp(0.0, 1.0)
    }
}

/// A running bound of the privacy loss of releases that are chosen adaptively, without a budget.
///
/// [`epsilon`](Self::epsilon) holds at all times at once: with probability at least `1 - δ` the
/// privacy loss never exceeded the value of its time. It costs more than a filter, because the time
/// of the last release is not fixed: budgets `B, 2B, 4B, ...` of the divergence of one order share
/// `δ`, the `j`-th has `δ/((j+1)(j+2))`, and Ville's inequality holds for each (Lécuyer 2021;
/// Whitehouse et al. 2023).
#[derive(Debug, Clone)]
pub struct PrivacyOdometer {
    relation: NeighboringRelation,
    delta: f64,
    order: f64,
    spent: f64,
}

impl PrivacyOdometer {
    /// Creates an odometer at `delta` based on the Rényi divergence of `order`, which must not
    /// depend on outputs.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1 or `order` is
    /// not above 1.
    pub fn new(
        relation: NeighboringRelation,
        delta: f64,
        order: f64,
    ) -> Result<Self, AccountantError> {
        check_delta(delta)?;
        check_order(order)?;
        Ok(Self { relation, delta, order, spent: 0.0 })
    }

    /// Counts `count` releases of `event`. If that fails, everything after it is unbounded.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if the event has no Rényi bound, and
    /// [`AccountantError::InvalidArgument`] if a parameter is outside its domain.
    pub fn record(&mut self, event: &DpEvent, count: u64) -> Result<(), AccountantError> {
        let measure = Measure::Renyi { order: self.order };
        match event.validate().and_then(|()| measure.cost(event, count, self.relation)) {
            Ok(cost) => {
                self.spent = (self.spent + cost) * (1.0 + f64::EPSILON);
                Ok(())
            }
            Err(error) => {
                self.spent = f64::INFINITY;
                Err(error)
            }
        }
    }

    /// Returns the bound on the privacy loss so far; infinite if it is not known.
    pub fn epsilon(&self) -> f64 {
        if self.spent == 0.0 {
            return 0.0;
        }
        let first = (2.0 / self.delta).ln() / (self.order - 1.0);
        let mut level = (self.spent / first).log2().ceil().max(0.0);
        // The logarithm rounds.
        if first * level.exp2() < self.spent {
            level += 1.0;
        }
        let budget = first * level.exp2();
        let share = self.delta / ((level + 2.0) * (level + 3.0));
        let epsilon = (budget - share.ln() / (self.order - 1.0)) * (1.0 + ROUNDING);
        if epsilon.is_nan() { f64::INFINITY } else { epsilon }
    }
}

fn check_order(order: f64) -> Result<(), AccountantError> {
    if order > 1.0 && order.is_finite() {
        return Ok(());
    }
    Err(AccountantError::invalid("order", format!("must be finite and above 1, got {order}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::correlated_noise::{Participation, Strategy};
    use crate::pld::PldAccountant;

    const RELATION: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

    #[test]
    fn admitted_releases_stay_within_the_budget() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let step = DpEvent::dp_sgd_step(0.01, 1.0);
        let plan = [(&step, 500u64)];
        let mut filter = PrivacyFilter::for_plan(budget, RELATION, plan).unwrap();
        let mut admitted = 0;
        while filter.admit(&step, 1).is_ok() {
            admitted += 1;
            assert!(admitted < 100_000);
        }
        let all = PldAccountant::new([(&step, admitted)], RELATION).unwrap();
        let all = all.epsilon(1e-5).unwrap();
        assert!(all.upper <= 2.0 && all.upper > 1.5, "{admitted}: {all:?}");
        // A cheaper release still fits, and a rejection changes nothing.
        let before = filter.remaining();
        let error = filter.admit(&step, 1).unwrap_err();
        assert!(matches!(error, AccountantError::BudgetExceeded { .. }), "{error}");
        assert!(error.to_string().starts_with("the budget is exceeded: 1 x "), "{error}");
        assert_eq!(filter.remaining(), before);
        filter.admit(&DpEvent::dp_sgd_step(1e-6, 100.0), 1).unwrap();
    }

    #[test]
    fn gaussian_filter_is_tight() {
        let budget = Budget::new(1.0, 1e-6).unwrap();
        let mut filter = PrivacyFilter::gaussian(budget, RELATION).unwrap();
        let mut events = Vec::new();
        for k in 0..10_000 {
            let event = DpEvent::gaussian(40.0 + f64::from(k % 7));
            if filter.admit(&event, 1).is_err() {
                break;
            }
            events.push(event);
        }
        let counted = events.iter().map(|event| (event, 1));
        let spent = GdpAccountant::new(counted, RELATION).unwrap().epsilon(1e-6).unwrap().upper;
        assert!(spent <= 1.0 && spent > 0.99, "{spent}");
    }

    #[test]
    fn what_a_filter_cannot_measure_is_refused() {
        let budget = Budget::new(1.0, 1e-6).unwrap();
        let mut gaussian = PrivacyFilter::gaussian(budget, RELATION).unwrap();
        let mut renyi = PrivacyFilter::renyi(budget, RELATION, 32.0).unwrap();
        let leaky = DpEvent::EpsilonDelta { epsilon: 0.0, delta: 1e-9 };
        for event in [DpEvent::NonPrivate, leaky, DpEvent::gaussian(f64::NAN)] {
            assert!(gaussian.admit(&event, 1).is_err(), "{event}");
            assert!(renyi.admit(&event, 1).is_err(), "{event}");
        }
        assert!(gaussian.admit(&DpEvent::dp_sgd_step(0.01, 1.0), 1).is_err());
        assert!(renyi.admit(&DpEvent::gaussian(1e3), u64::MAX).is_err());
        assert_eq!((gaussian.remaining(), renyi.remaining()), (1.0, 1.0));
        let error = PrivacyFilter::renyi(budget, RELATION, 1.5).unwrap_err().to_string();
        assert!(error.contains("larger order"), "{error}");
        assert!(PrivacyFilter::renyi(budget, RELATION, f64::NAN).is_err());
    }

    #[test]
    fn steps_with_correlated_noise_are_refused_and_the_whole_run_is_counted() {
        let budget = Budget::new(1.0, 1e-6).unwrap();
        let strategy = Strategy::banded_toeplitz(4, &[1.0, 0.5]).unwrap();
        let participation = Participation::AtMost { times: 2, separation: 1 };
        let step = DpEvent::correlated_gaussian(20.0, &strategy, participation);
        let mut gaussian = PrivacyFilter::gaussian(budget, RELATION).unwrap();
        let mut renyi = PrivacyFilter::renyi(budget, RELATION, 32.0).unwrap();
        for filter in [&mut gaussian, &mut renyi] {
            for count in [1, 2] {
                let error = filter.admit(&step, count).unwrap_err().to_string();
                assert!(error.contains("without_correlation"), "{error}");
            }
            assert_eq!(filter.remaining(), 1.0);
            let (run, count) = step.without_correlation(2).unwrap();
            filter.admit(&run, count).unwrap();
        }
        // Both columns overlap in one row: (1 + (1 + 1/2)^2) / 20^2.
        let spent = (1.0 - gaussian.remaining()) * gaussian.most;
        assert!((spent * 400.0 - 3.25).abs() < 1e-6, "{spent}");
        let mut odometer = PrivacyOdometer::new(RELATION, 1e-6, 12.0).unwrap();
        assert!(odometer.record(&step, 1).is_err());
        assert!(odometer.epsilon().is_infinite());
    }

    #[test]
    fn odometer_is_above_the_filter_of_its_time_and_never_falls() {
        let mut odometer = PrivacyOdometer::new(RELATION, 1e-5, 12.0).unwrap();
        assert_eq!(odometer.epsilon(), 0.0);
        let step = DpEvent::dp_sgd_step(0.01, 1.0);
        let mut before = 0.0;
        for steps in 1..=40u64 {
            odometer.record(&step, 50).unwrap();
            let fixed = RdpAccountant::new([(&step, 50 * steps)], RELATION).unwrap();
            let fixed = epsilon_from_rdp(12.0, fixed.rdp(12.0), 1e-5);
            let now = odometer.epsilon();
            assert!(now >= before && now > fixed && now < 4.0 * fixed + 2.0, "{now} {fixed}");
            before = now;
        }
        let mut unknown = odometer.clone();
        odometer.record(&DpEvent::NonPrivate, 1).unwrap();
        assert!(odometer.epsilon().is_infinite());
        assert!(unknown.record(&DpEvent::Unsupported { reason: "weights".into() }, 1).is_err());
        assert!(unknown.epsilon().is_infinite());
    }

    #[test]
    fn the_odometer_is_its_formula() {
        // Divergence of order 12 per release: 12 / (2 sigma^2).
        let first = 2e5f64.ln() / 11.0;
        for (sigma, factor, shares) in [(10.0, 1.0, 6.0), (1.0, 8.0, 30.0), (0.25, 128.0, 90.0)] {
            let mut odometer = PrivacyOdometer::new(RELATION, 1e-5, 12.0).unwrap();
            odometer.record(&DpEvent::gaussian(sigma), 1).unwrap();
            let expected = factor * first + (shares / 1e-5f64).ln() / 11.0;
            let found = odometer.epsilon();
            assert!(found >= expected && found < expected * (1.0 + 1e-9), "{found} {expected}");
        }
        for (delta, order) in
            [(0.0, 2.0), (1.0, 2.0), (f64::NAN, 2.0), (1e-5, 1.0), (1e-5, f64::INFINITY)]
        {
            assert!(PrivacyOdometer::new(RELATION, delta, order).is_err(), "{delta} {order}");
        }
    }

    #[test]
    fn the_renyi_filter_is_its_formula() {
        let budget = Budget::new(1.0, 1e-6).unwrap();
        let mut filter = PrivacyFilter::renyi(budget, RELATION, 32.0).unwrap();
        filter.admit(&DpEvent::gaussian(10.0), 1).unwrap();
        let conversion = (31.0f64 / 32.0).ln() + (1e6f64 / 32.0).ln() / 31.0;
        let expected = 1.0 - 0.16 / (1.0 - conversion);
        assert!((filter.remaining() / expected - 1.0).abs() < 1e-9, "{}", filter.remaining());
        let before = filter.remaining();
        filter.admit(&DpEvent::gaussian(10.0), 0).unwrap();
        assert_eq!(filter.remaining(), before);
        for order in [1.0, 0.5, f64::INFINITY] {
            assert!(PrivacyFilter::renyi(budget, RELATION, order).is_err(), "{order}");
        }
    }
}
