//! Strategies with a small error, found by deterministic searches.

mod buffered;
mod dense;
mod families;
mod minimizer;
mod slopes;
mod symmetric_root;
mod toeplitz;

pub use families::StrategyFamily;
use serde::{Deserialize, Serialize};

use super::strategy::{Strategy, StrategyLoss};
use super::workload::Workload;
use crate::domain::check_count;
use crate::error::AccountantError;

/// Maximum number of steps in a search with learning rates.
const MAX_RATED_STEPS: u64 = 10_000;

/// The error of the steps that is minimized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The mean squared error of all steps.
    Mean,
    /// The largest squared error of a step.
    Max,
}

/// A search for the strategy with the smallest loss: the squared error times the squared
/// sensitivity.
///
/// The searches are deterministic. They affect only the error: the sensitivity of the result is
/// computed from its matrix like that of any other strategy.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::correlated_noise::{StrategySearch, Workload};
///
/// let search = StrategySearch::new(200)?;
/// let strategy = search.buffered(2)?;
/// let loss = strategy.loss(&Workload::prefix_sums(), 1, 1)?;
/// assert!(loss.mean_loss_sq().sqrt() < 2.7);
/// # Ok::<(), burn_dp_accountant::AccountantError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct StrategySearch {
    steps: u64,
    times: u64,
    separation: u64,
    in_fixed_order: bool,
    objective: Objective,
    workload: Workload,
}

impl StrategySearch {
    /// Creates a search for `steps` steps, one participation, and the mean error of prefix sums.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `steps` is 0 or above 10,000,000.
    pub fn new(steps: u64) -> Result<Self, AccountantError> {
        Strategy::identity(steps)?;
        let workload = Workload::prefix_sums();
        Ok(Self {
            steps,
            times: 1,
            separation: 1,
            in_fixed_order: false,
            objective: Objective::Mean,
            workload,
        })
    }

    /// Sets the participation: at most `times` times, at least `separation` steps apart.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is 0.
    pub fn with_participation(
        mut self,
        times: u64,
        separation: u64,
    ) -> Result<Self, AccountantError> {
        check_count("times", times)?;
        check_count("separation", separation)?;
        (self.times, self.separation, self.in_fixed_order) = (times, separation, false);
        Ok(self)
    }

    /// Sets the participation: exactly every `period` steps, in a fixed order of the data.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `period` is 0.
    pub fn with_fixed_order(mut self, period: u64) -> Result<Self, AccountantError> {
        check_count("period", period)?;
        self.times = self.steps.div_ceil(period);
        (self.separation, self.in_fixed_order) = (period, true);
        Ok(self)
    }

    /// Sets the error that is minimized.
    #[must_use]
    pub fn with_objective(mut self, objective: Objective) -> Self {
        self.objective = objective;
        self
    }

    /// Sets the workload. With learning rates for each step, the time of an evaluation grows with
    /// the square of the number of steps.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if the workload has learning rates, but fewer
    /// than steps or for more than 10,000 steps.
    pub fn with_workload(mut self, workload: Workload) -> Result<Self, AccountantError> {
        if let Some(rates) = workload.learning_rates()
            && (self.steps > MAX_RATED_STEPS || rates < self.len())
        {
            return Err(AccountantError::invalid(
                "workload",
                format!(
                    "must have a learning rate for each of the {} steps, and at most \
                     {MAX_RATED_STEPS} steps in a search with learning rates, got {rates} rates; \
                     search for a constant rate, and compare strategies with squared_errors on the \
                     real workload",
                    self.steps
                ),
            ));
        }
        self.workload = workload;
        Ok(self)
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn len(&self) -> usize {
        self.steps as usize
    }

    /// Returns the loss of a strategy for the objective.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Numerical`] if an error overflows.
    pub fn loss_of(&self, strategy: &Strategy) -> Result<f64, AccountantError> {
        let loss = match self.in_fixed_order {
            true => strategy.loss_in_fixed_order(&self.workload, self.separation)?,
            false => strategy.loss(&self.workload, self.times, self.separation)?,
        };
        Ok(self.of_objective(&loss))
    }

    fn of_objective(&self, loss: &StrategyLoss) -> f64 {
        match self.objective {
            Objective::Mean => loss.mean_loss_sq(),
            Objective::Max => loss.max_loss_sq(),
        }
    }

    /// Returns the candidate with the smallest loss.
    fn best_of(
        &self,
        candidates: impl IntoIterator<Item = Strategy>,
    ) -> Result<Strategy, AccountantError> {
        let mut best: Option<(f64, Strategy)> = None;
        for strategy in candidates {
            let loss = self.loss_of(&strategy)?;
            if best.as_ref().is_none_or(|(least, _)| loss < *least) {
                best = Some((loss, strategy));
            }
        }
        best.map(|(_, strategy)| strategy)
            .ok_or_else(|| AccountantError::numerical("the search found no strategy"))
    }
}
