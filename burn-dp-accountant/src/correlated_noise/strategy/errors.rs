//! The errors of a strategy, and its loss: the error at equal privacy.

use super::super::series;
use super::super::workload::Workload;
use super::Strategy;
use crate::error::AccountantError;
use crate::math::sum::CompensatedSum;

/// The squared error of the answer of each step, for noise of standard deviation 1 and sensitivity
/// 1. The loss of a strategy is the error times its squared sensitivity.
#[derive(Debug, Clone, PartialEq)]
pub struct SquaredErrors {
    of_steps: Vec<f64>,
}

impl SquaredErrors {
    /// Returns the squared error of each step.
    pub fn of_steps(&self) -> &[f64] {
        &self.of_steps
    }

    /// Returns the largest squared error of a step.
    pub fn max(&self) -> f64 {
        self.of_steps.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the mean squared error of the steps.
    pub fn mean(&self) -> f64 {
        let mut sum = CompensatedSum::default();
        self.of_steps.iter().for_each(|&error| sum.add(error));
        sum.value() / self.of_steps.len() as f64
    }
}

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
    /// Whether the sensitivity is exact. Otherwise it is an upper bound.
    pub is_exact: bool,
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
    /// Returns the squared errors of `workload` for each step: the squared norms of the rows of
    /// `A C^-1`.
    ///
    /// The time is proportional to the number of steps for a Toeplitz strategy with the default
    /// workload, momentum or decay, and to its square with learning rates, with normalized columns,
    /// for a tree and for a dense strategy.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if the workload has fewer learning rates than
    /// the strategy has steps, and [`AccountantError::Numerical`] if an error overflows.
    pub fn squared_errors(&self, workload: &Workload) -> Result<SquaredErrors, AccountantError> {
        let n = self.len();
        if let Some(rates) = workload.learning_rates()
            && rates < n
        {
            return Err(AccountantError::invalid(
                "rates",
                format!("must be one for each of the {n} steps, got {rates}"),
            ));
        }
        let toeplitz = if self.has_normalized_columns() || workload.learning_rates().is_some() {
            None
        } else {
            self.toeplitz_inverse(n)
        };
        let of_steps = if let Some(mut noise) = toeplitz {
            workload.apply(0, &mut noise);
            series::sums_of_squares(&noise)
        } else {
            let parts = self.inverse_parts();
            let mut sums = vec![0.0; n];
            for j in 0..n {
                let mut column = self.inverse_column(j, &parts);
                workload.apply(j, &mut column);
                sums[j..].iter_mut().zip(&column).for_each(|(sum, value)| *sum += value * value);
            }
            sums
        };
        if of_steps.iter().all(|error| error.is_finite()) {
            Ok(SquaredErrors { of_steps })
        } else {
            Err(AccountantError::numerical("an error of the strategy overflows"))
        }
    }

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
        let sensitivity = self.bounded_sensitivity(self.steps(), times, separation)?;
        Ok(StrategyLoss {
            max_sq_error: errors.max(),
            mean_sq_error: errors.mean(),
            sensitivity: sensitivity.value,
            is_exact: sensitivity.is_exact,
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
        let sensitivity = self.bounded_sensitivity_in_fixed_order(self.steps(), period)?;
        Ok(StrategyLoss {
            max_sq_error: errors.max(),
            mean_sq_error: errors.mean(),
            sensitivity: sensitivity.value,
            is_exact: sensitivity.is_exact,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn errors_of_independent_noise_and_of_a_tree_are_known() {
        let sums = Workload::prefix_sums();
        let identity = Strategy::identity(5).unwrap().squared_errors(&sums).unwrap();
        assert_eq!(identity.of_steps(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((identity.max(), identity.mean()), (5.0, 3.0));
        let tree = Strategy::tree(9).unwrap().squared_errors(&sums).unwrap();
        assert_eq!(tree.of_steps(), [1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 3.0, 1.0, 2.0]);
    }

    #[test]
    fn optimal_toeplitz_has_equal_error_and_sensitivity() {
        for (n, loss) in [(8, 1.7183792591), (1_000, 3.2650030807), (100_000, 4.7309530518)] {
            let strategy = Strategy::optimal_toeplitz(n).unwrap();
            let error = strategy.squared_errors(&Workload::prefix_sums()).unwrap().max();
            let sensitivity = strategy.sensitivity(1, 1).unwrap();
            assert!((error / sensitivity.powi(2) - 1.0).abs() < 1e-10, "{error} {sensitivity}");
            assert!(((error * sensitivity.powi(2)).sqrt() / loss - 1.0).abs() < 1e-10, "{n}");
        }
    }
}
