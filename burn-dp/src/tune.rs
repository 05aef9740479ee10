//! Private hyperparameter search: a random, secret number of runs, the best of which is released.
//!
//! [`PrivateSearch`] has the steps of a search and its ledger, and [`RunCount`] the distributions
//! of the number of runs. [`PrivacyPlan::event_of_run`] returns the release of one run, including
//! runs with correlated noise.
//!
//! # Example
//!
//! ```
//! use burn_dp::prelude::*;
//! use burn_dp::tune::{PrivateSearch, RunCount};
//! use burn_dp_accountant::DpEvent;
//!
//! # fn main() -> Result<(), DpError> {
//! let plan = |sigma: f64| {
//!     PrivacyPlanConfig::new(2000, 100.0).with_steps(40).with_noise_multiplier(sigma).init()
//! };
//! let runs = RunCount::geometric(8.0);
//! let budget = Budget::new(3.0, 1e-5)?;
//! // A plan that is refused counts as a run without privacy.
//! let run = |sigma| plan(sigma).and_then(|plan| plan.event_of_run());
//! let sigma = PrivateSearch::calibrate(budget, plan(1.0)?.relation(), runs, |sigma| {
//!     run(sigma).unwrap_or(DpEvent::NonPrivate)
//! })?;
//! let search = PrivateSearch::new(run(sigma)?, runs)?;
//! for _ in 0..search.draw_runs()? {
//!     let learning_rate = [0.1, 0.3, 1.0][PrivateSearch::draw_candidate(3)?];
//!     let plan = plan(sigma)?; // train with it, and keep the model with the best score
//! #   assert!(plan.noise_multiplier() == sigma && learning_rate > 0.0);
//! }
//! # assert!(search.epsilon(plan(sigma)?.relation(), 1e-5)?.upper <= 3.0);
//! # assert!(plan(sigma)?.epsilon_at_end(1e-5)? < 2.5);
//! # Ok(())
//! # }
//! ```

pub use burn_dp_accountant::RunCount;
pub use burn_dp_accountant::search::PrivateSearch;
use burn_dp_accountant::{DpEvent, LedgerHeader, PrivacyLedger};

use crate::DpError;
use crate::optim::PrivacyPlan;

impl PrivacyPlan {
    /// Returns the releases of all steps as one event, for a search that repeats the run, without
    /// releases [before](crate::optim::PrivacyPlanConfig::with_earlier_releases) it. A run
    /// that is accounted for as a whole (correlated noise, bins, parts, shuffled epochs) is
    /// replaced by [releases that cost at least as much](DpEvent::without_correlation).
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Accountant`] if the accountant cannot analyze a step.
    pub fn event_of_run(&self) -> Result<DpEvent, DpError> {
        let released = |(event, count): &(DpEvent, u64)| {
            let (event, count) = event.without_correlation(*count)?;
            Ok(DpEvent::self_composed(event, count))
        };
        let mut events = self.planned.iter().map(released).collect::<Result<Vec<_>, DpError>>()?;
        Ok(match events.len() {
            1 => events.remove(0),
            _ => DpEvent::Composed { events },
        })
    }

    /// Returns the ledger of a search whose runs follow this plan: the releases
    /// [before](crate::optim::PrivacyPlanConfig::with_earlier_releases) it, once, and then the
    /// release of the whole search. [`PrivateSearch::calibrate_after`] finds the noise of a run for
    /// a budget of both.
    ///
    /// # Arguments
    ///
    /// - `search`: with [`event_of_run`](Self::event_of_run) of the plan that the runs follow
    /// - `header`: of the ledger of a run, which says how its noise was made and what it does not
    ///   cover; the plan has none, because each run has its own key
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `header` has another unit or relation than the plan,
    /// and [`DpError::Accountant`] if the number of releases overflows.
    pub fn ledger_of_search(
        &self,
        search: &PrivateSearch,
        header: LedgerHeader,
    ) -> Result<PrivacyLedger, DpError> {
        if header.unit != self.unit || header.relation != self.relation() {
            let reason = format!(
                "must be for {} and \"{}\" as the plan is, got {} and \"{}\"",
                self.unit,
                self.relation(),
                header.unit,
                header.relation
            );
            return Err(DpError::invalid("header", reason));
        }
        let mut ledger = self.ledger_of(header);
        ledger.record(&search.event())?;
        Ok(ledger)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp_accountant::{NeighboringRelation, UnitOfPrivacy};

    use super::*;
    use crate::optim::PrivacyPlanConfig;

    #[test]
    fn the_ledger_of_a_search_begins_with_the_releases_before_it() {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let header = || LedgerHeader::new(UnitOfPrivacy::Example, relation);
        let mut before = PrivacyLedger::new(header());
        before.record_many(&DpEvent::gaussian(20.0), 3).unwrap();
        let config = PrivacyPlanConfig::new(2_000, 100.0).with_steps(40).with_noise_multiplier(2.0);
        let alone = config.clone().init().unwrap();
        let plan = config.with_earlier_releases(before.clone()).init().unwrap();
        // The run of a search is the same with and without them, because they are counted once.
        assert_eq!(plan.event_of_run().unwrap(), alone.event_of_run().unwrap());
        let search =
            PrivateSearch::new(plan.event_of_run().unwrap(), RunCount::geometric(4.0)).unwrap();
        let ledger = plan.ledger_of_search(&search, header()).unwrap();
        let mut expected = before;
        expected.record(&search.event()).unwrap();
        assert_eq!(ledger.entries(), expected.entries());
        assert!(ledger.header().facts.contains_key("earlier_releases"));
        assert_eq!(alone.ledger_of_search(&search, header()).unwrap().releases(), 1);
        let users = LedgerHeader::new(UnitOfPrivacy::User, relation);
        let error = plan.ledger_of_search(&search, users).unwrap_err().to_string();
        assert!(error.contains("header must be for"), "{error}");
    }
}
