//! The loss of a strategy: its error at equal privacy.

use super::strategy::Strategy;
use super::workload::Workload;
use crate::error::AccountantError;

/// The squared errors of a workload and the sensitivity of a strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct StrategyLoss {
    /// Largest squared error of a step, for noise of standard deviation 1.
    pub max_sq_error: f64,
    /// Mean squared error of the steps.
    pub mean_sq_error: f64,
    /// Sensitivity of the strategy under the participation.
    pub sensitivity: f64,
}

impl StrategyLoss {
    /// Returns the largest squared error times the squared sensitivity.
    pub fn max_loss_sq(&self) -> f64 {
        self.max_sq_error * self.sensitivity.powi(2)
    }

    /// Returns the mean squared error times the squared sensitivity.
    pub fn mean_loss_sq(&self) -> f64 {
        self.mean_sq_error * self.sensitivity.powi(2)
    }
}

impl Strategy {
    /// Returns the errors of `workload` and the sensitivity for at most `times` participations that
    /// are at least `separation` steps apart.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `times` or `separation` is 0 or the workload
    /// has too few learning rates, and [`AccountantError::Numerical`] if a number overflows.
    pub fn loss(
        &self,
        workload: &Workload,
        times: u64,
        separation: u64,
    ) -> Result<StrategyLoss, AccountantError> {
        let errors = self.squared_errors(workload)?;
        Ok(StrategyLoss {
            max_sq_error: errors.max(),
            mean_sq_error: errors.mean(),
            sensitivity: self.sensitivity(times, separation)?,
        })
    }

    /// Returns the errors of `workload` and the sensitivity if a unit takes part exactly every
    /// `period` steps.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `period` is 0 or the workload has too few
    /// learning rates, and [`AccountantError::Numerical`] if a number overflows.
    pub fn loss_in_fixed_order(
        &self,
        workload: &Workload,
        period: u64,
    ) -> Result<StrategyLoss, AccountantError> {
        let errors = self.squared_errors(workload)?;
        Ok(StrategyLoss {
            max_sq_error: errors.max(),
            mean_sq_error: errors.mean(),
            sensitivity: self.sensitivity_in_fixed_order(period)?,
        })
    }
}
