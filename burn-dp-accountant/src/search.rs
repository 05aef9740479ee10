//! Private hyperparameter search: a random number of runs, the best of which is released.
//!
//! The runs train on the same private data, and only the best result is released. This costs more
//! than one run, but far less than all of them, if the number of runs is random and stays secret
//! (Papernot and Steinke 2022). The steps of a search:
//!
//! 1. [`PrivateSearch::new`] with the release of one run and a [`RunCount`]; the noise of one run
//!    for a total budget is [`PrivateSearch::calibrate`].
//! 2. [`PrivateSearch::draw_runs`] once, before the first run.
//! 3. Each run draws its hyperparameters at random, independently of the data and of the other
//!    runs, trains, and is scored. The score may use the private data only if the run's release
//!    contains it.
//! 4. The best result is released, and nothing else: no other score, and not the number of runs.
//!    Without any run (a Poisson number can be 0) a fixed default is released.
//! 5. [`PrivateSearch::ledger`] is the ledger of the whole search.
//!
//! # Example
//!
//! ```
//! use burn_dp_accountant::search::PrivateSearch;
//! use burn_dp_accountant::{Budget, DpEvent, NeighboringRelation, RunCount};
//!
//! let runs = RunCount::geometric(10.0);
//! let relation = NeighboringRelation::AddOrRemoveOne;
//! let run = |sigma| DpEvent::self_composed(DpEvent::dp_sgd_step(0.01, sigma), 500);
//! let budget = Budget::new(4.0, 1e-5)?;
//! let sigma = PrivateSearch::calibrate(budget, relation, runs, run)?;
//! let search = PrivateSearch::new(run(sigma), runs)?;
//! assert!(search.epsilon(relation, 1e-5)?.upper <= 4.0);
//! let runs = search.draw_runs()?;
//! assert!(runs >= 1);
//! # Ok::<(), burn_dp_accountant::AccountantError>(())
//! ```
//!
//! # References
//!
//! - "Hyperparameter Tuning with Rényi Differential Privacy", Papernot and Steinke 2022: the
//!   distributions of the number of runs, and the Rényi bounds.
//! - "Privacy Profiles for Private Selection", Koskela, Redberg, Wang 2024: a bound from the δ of
//!   one run. The bound here is tighter; its proof is in `pld/selection.rs`.

use crate::analysis::epsilon_of_events;
use crate::budget::Budget;
use crate::calibration::Calibration;
use crate::domain::check_count;
use crate::epsilon::Epsilon;
use crate::error::AccountantError;
use crate::event::{DpEvent, RunCount};
use crate::ledger::{LedgerHeader, PrivacyLedger};
use crate::relation::NeighboringRelation;

/// Relative tolerance of the calibrated noise.
const TOLERANCE: f64 = 1e-4;

/// A search over a random number of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivateSearch {
    run: DpEvent,
    runs: RunCount,
}

impl PrivateSearch {
    /// Creates a search whose runs all release `run` (a whole training run, usually
    /// [`DpEvent::SelfComposed`]).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a parameter is outside its domain.
    pub fn new(run: DpEvent, runs: RunCount) -> Result<Self, AccountantError> {
        let search = Self { run, runs };
        search.event().validate()?;
        Ok(search)
    }

    /// Returns the noise multiplier of one run with which the whole search meets `budget`, rounded
    /// up.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if no noise is enough, and
    /// [`AccountantError::Unsupported`] or [`AccountantError::InvalidArgument`] for an event that
    /// cannot be analyzed.
    pub fn calibrate(
        budget: Budget,
        relation: NeighboringRelation,
        runs: RunCount,
        run: impl Fn(f64) -> DpEvent,
    ) -> Result<f64, AccountantError> {
        Self::calibrate_after([], budget, relation, runs, run)
    }

    /// Returns the noise multiplier of one run with which `earlier`, the earlier releases on the
    /// same data, and then the whole search meet `budget` together, rounded up.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if the earlier releases alone spend the budget, and
    /// the errors of [`calibrate`](Self::calibrate).
    pub fn calibrate_after<'a>(
        earlier: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        budget: Budget,
        relation: NeighboringRelation,
        runs: RunCount,
        run: impl Fn(f64) -> DpEvent,
    ) -> Result<f64, AccountantError> {
        let calibration =
            Calibration::new(budget).with_relation(relation).with_tolerance(TOLERANCE);
        let event = |sigma| DpEvent::RepeatAndSelect { event: Box::new(run(sigma)), runs };
        calibration.noise_multiplier_after(earlier, 1, event)
    }

    /// Returns the release of the whole search.
    pub fn event(&self) -> DpEvent {
        DpEvent::RepeatAndSelect { event: Box::new(self.run.clone()), runs: self.runs }
    }

    /// Returns a ledger with the release of the whole search.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a parameter is outside its domain.
    pub fn ledger(&self, header: LedgerHeader) -> Result<PrivacyLedger, AccountantError> {
        let mut ledger = PrivacyLedger::new(header);
        ledger.record(&self.event())?;
        Ok(ledger)
    }

    /// Returns ε at `delta` of the whole search.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if a run cannot be analyzed, and
    /// [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1.
    pub fn epsilon(
        &self,
        relation: NeighboringRelation,
        delta: f64,
    ) -> Result<Epsilon, AccountantError> {
        epsilon_of_events([(&self.event(), 1)], relation, delta)
    }

    /// Draws the number of runs with entropy from the operating system. Draw it once and keep it
    /// secret, because a second draw would be a choice. The distribution of the number is within
    /// 1e-12 of the exact one in total variation: choose δ far above
    /// [`delta_of_draw`](Self::delta_of_draw).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Entropy`] if the operating system provides no entropy, and the
    /// errors of [`draw_runs_from`](Self::draw_runs_from).
    pub fn draw_runs(&self) -> Result<u64, AccountantError> {
        self.draw_runs_from(random_word()?)
    }

    /// Returns an upper bound of what the draw of the number of runs adds to δ of a search with
    /// this ε: `1e-12 (1 + e^ε)`. No ε or δ of a ledger or a statement contains it.
    pub fn delta_of_draw(epsilon: f64) -> f64 {
        // The rounding of all three operations is below the factor.
        1e-12 * (1.0 + 1e-9) * (1.0 + epsilon.exp())
    }

    /// Draws the candidate of a run, uniformly from `candidates`, with entropy from the operating
    /// system. Draw one for each run.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if there are no candidates, and
    /// [`AccountantError::Entropy`] if the operating system provides no entropy.
    pub fn draw_candidate(candidates: usize) -> Result<usize, AccountantError> {
        check_count("candidates", candidates as u64)?;
        let number = candidates as u64;
        // Below this, every candidate has the same number of words.
        let limit = u64::MAX - u64::MAX % number;
        loop {
            let word = random_word()?;
            if word < limit {
                return Ok((word % number) as usize);
            }
        }
    }

    /// Returns the number of runs that belongs to a uniformly random word of a secure generator.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if the number cannot be drawn: its mean is
    /// above a million, or above 600 and it is Poisson.
    pub fn draw_runs_from(&self, word: u64) -> Result<u64, AccountantError> {
        self.runs.check_draws()?;
        Ok(self.runs.quantile(word))
    }
}

fn random_word() -> Result<u64, AccountantError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| AccountantError::Entropy { reason: error.to_string() })?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ledger::UnitOfPrivacy;

    #[test]
    fn every_candidate_is_drawn() {
        let mut drawn = [0; 3];
        for _ in 0..3_000 {
            drawn[PrivateSearch::draw_candidate(3).unwrap()] += 1;
        }
        // Seven standard deviations.
        assert!(drawn.iter().all(|&count| (820..1_180).contains(&count)), "{drawn:?}");
        assert_eq!(PrivateSearch::draw_candidate(1).unwrap(), 0);
        assert!(PrivateSearch::draw_candidate(0).is_err());
    }

    #[test]
    fn the_draw_adds_its_distance_to_delta() {
        // Total variation to a mechanism with (ε, δ) costs it twice, once on each side.
        let added = PrivateSearch::delta_of_draw(3.0);
        assert!((2.1085536923e-11..2.10855372e-11).contains(&added), "{added:e}");
        assert!(PrivateSearch::delta_of_draw(0.0) >= 2e-12);
    }

    #[test]
    fn ledger_of_a_search_is_the_search_and_not_its_best_run() {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let search = PrivateSearch::new(DpEvent::gaussian(5.0), RunCount::geometric(20.0)).unwrap();
        let ledger = search.ledger(LedgerHeader::new(UnitOfPrivacy::Example, relation)).unwrap();
        let whole = ledger.epsilon(1e-6).unwrap().upper;
        let mut one = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        one.record(&DpEvent::gaussian(5.0)).unwrap();
        assert!(whole > 1.5 * one.epsilon(1e-6).unwrap().upper);
        assert_eq!(whole, search.epsilon(relation, 1e-6).unwrap().upper);
    }

    #[test]
    fn calibrated_search_meets_the_budget_and_less_noise_does_not() {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let budget = Budget::new(2.0, 1e-6).unwrap();
        for runs in [RunCount::Poisson { mean: 10.0 }, RunCount::logarithmic(10.0)] {
            let sigma =
                PrivateSearch::calibrate(budget, relation, runs, DpEvent::gaussian).unwrap();
            let upper = |sigma: f64| {
                let search = PrivateSearch::new(DpEvent::gaussian(sigma), runs).unwrap();
                search.epsilon(relation, 1e-6).unwrap().upper
            };
            assert!(upper(sigma) <= 2.0 && upper(0.999 * sigma) > 2.0, "{runs:?} {sigma}");
        }
    }

    #[test]
    fn a_search_after_earlier_releases_meets_the_budget_of_all() {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let (budget, runs) = (Budget::new(2.0, 1e-6).unwrap(), RunCount::geometric(5.0));
        let before = DpEvent::gaussian(6.0);
        let upper = |sigma: f64| {
            let mut ledger =
                PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
            ledger.record_many(&before, 2).unwrap();
            let search = PrivateSearch::new(DpEvent::gaussian(sigma), runs).unwrap();
            ledger.record(&search.event()).unwrap();
            ledger.epsilon(1e-6).unwrap().upper
        };
        let run = DpEvent::gaussian;
        let alone = PrivateSearch::calibrate(budget, relation, runs, run).unwrap();
        let after =
            |count| PrivateSearch::calibrate_after([(&before, count)], budget, relation, runs, run);
        let sigma = after(2).unwrap();
        assert!(sigma > alone && upper(sigma) <= 2.0 && upper(0.999 * sigma) > 2.0, "{sigma}");
        let error = after(20).unwrap_err().to_string();
        assert!(error.contains("the earlier releases alone cost"), "{error}");
    }

    #[test]
    fn impossible_searches_are_refused() {
        for runs in [
            RunCount::Poisson { mean: 750.0 },
            RunCount::geometric(1e12),
            RunCount::TruncatedNegativeBinomial { mean: 3_000.0, shape: 2_000.0 },
        ] {
            // It can be accounted for, but not drawn.
            let search = PrivateSearch::new(DpEvent::gaussian(1.0), runs).unwrap();
            let error = search.draw_runs().unwrap_err().to_string();
            assert!(error.starts_with("mean "), "{runs:?}: {error}");
        }
        let extreme = RunCount::TruncatedNegativeBinomial { mean: 1e4, shape: -0.99 };
        let error = PrivateSearch::new(DpEvent::gaussian(1.0), extreme).unwrap_err().to_string();
        assert!(error.contains("a shape of -0.99"), "{error}");
        let few = RunCount::geometric(0.5);
        assert!(PrivateSearch::new(DpEvent::gaussian(1.0), few).is_err());
        assert!(PrivateSearch::new(DpEvent::gaussian(0.0), RunCount::geometric(2.0)).is_err());
        let search = PrivateSearch::new(DpEvent::gaussian(1.0), RunCount::geometric(3.0)).unwrap();
        assert!(search.draw_runs().unwrap() >= 1);
    }

    #[test]
    fn a_replaced_unit_needs_twice_the_noise() {
        // The shift of a Gaussian run is 2 in place of 1.
        let budget = Budget::new(2.0, 1e-6).unwrap();
        let runs = RunCount::geometric(5.0);
        let [one, two] = [NeighboringRelation::AddOrRemoveOne, NeighboringRelation::ReplaceOne]
            .map(|relation| {
                let sigma = PrivateSearch::calibrate(budget, relation, runs, DpEvent::gaussian);
                let sigma = sigma.unwrap();
                let search = PrivateSearch::new(DpEvent::gaussian(sigma), runs).unwrap();
                assert!(search.epsilon(relation, 1e-6).unwrap().upper <= 2.0, "{relation}");
                sigma
            });
        assert!((two / one / 2.0 - 1.0).abs() < 2.0 * TOLERANCE, "{one} {two}");
    }

    #[test]
    fn draws_belong_to_the_distribution_of_the_search() {
        let of =
            |mean| PrivateSearch::new(DpEvent::gaussian(1.0), RunCount::geometric(mean)).unwrap();
        // At most k runs have the probability 1 - 0.9^k.
        let quartiles = [1u64, 2, 3].map(|quarter| of(10.0).draw_runs_from(quarter << 62).unwrap());
        assert_eq!(quartiles, [3, 7, 14]);
        assert!(of(1e12).draw_runs_from(0).is_err());
        // Twenty draws of at most 5 runs have the probability (5/1000)^20.
        let drawn: Vec<u64> = (0..20).map(|_| of(1_000.0).draw_runs().unwrap()).collect();
        assert!(drawn.iter().any(|&runs| runs > 5), "{drawn:?}");
    }
}
