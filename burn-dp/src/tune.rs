//! Private search of hyperparameters: a random, secret number of runs, of which the best is
//! released.
//!
//! [`PrivateSearch`] has the steps of a search and its ledger, [`RunCount`] the distributions of
//! the number of runs. [`PrivacyPlan::event_of_run`] is what one run releases, also with correlated
//! noise.
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

use burn_dp_accountant::DpEvent;
pub use burn_dp_accountant::RunCount;
pub use burn_dp_accountant::search::PrivateSearch;

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
}
