//! The strategy of correlated noise. Each file has the methods of one subject.

mod bin_products;
mod columns;
mod errors;
mod file;
mod matrix;
mod noising;
mod sensitivity;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use errors::{SquaredErrors, StrategyLoss};
pub use matrix::StrategyMatrix;
use matrix::check_matrix;
pub use noising::{NoiseRecipe, NoiseStream, Noising};
pub(crate) use sensitivity::Sensitivity;

use super::series;
use crate::error::AccountantError;

/// Maximum number of steps of a strategy.
const MAX_STEPS: u64 = 10_000_000;
/// Maximum number of rows of a dense strategy.
const MAX_DENSE_STEPS: u64 = 1_024;

/// A strategy: the lower-triangular matrix `C` of a run of `steps` steps.
///
/// Step `t` of the run gets the noise `(C^-1 z)_t` with independent `z`. A strategy is checked when
/// it is created and when it is read, it is cheap to clone, and its serialized form is exact.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Strategy(Arc<Checked>);

impl PartialEq for Strategy {
    fn eq(&self, other: &Self) -> bool {
        // No number is NaN, so that a strategy equals itself.
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

#[derive(Debug, PartialEq)]
struct Checked {
    written: Written,
    bands: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    steps: u64,
    matrix: StrategyMatrix,
    normalized_columns: bool,
}

impl Strategy {
    /// Creates the strategy of a matrix.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain, `steps` is 0
    /// or above 10,000,000 (dense: 1,024), or the inverse of the matrix overflows.
    pub fn new(steps: u64, matrix: StrategyMatrix) -> Result<Self, AccountantError> {
        Written { steps, matrix, normalized_columns: false }.try_into()
    }

    /// Creates the identity: independent noise.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn identity(steps: u64) -> Result<Self, AccountantError> {
        Self::new(steps, StrategyMatrix::Identity)
    }

    /// Creates the optimal Toeplitz strategy (Fichtenberger, Henzinger, Upadhyay 2023).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn optimal_toeplitz(steps: u64) -> Result<Self, AccountantError> {
        Self::new(steps, StrategyMatrix::OptimalToeplitz)
    }

    /// Creates a banded Toeplitz strategy of these coefficients of `C`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn banded_toeplitz(steps: u64, coefficients: &[f64]) -> Result<Self, AccountantError> {
        Self::new(steps, StrategyMatrix::BandedToeplitz { coefficients: coefficients.to_vec() })
    }

    /// Creates a strategy from the coefficients of `C^-1`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn banded_inverse(steps: u64, coefficients: &[f64]) -> Result<Self, AccountantError> {
        Self::new(steps, StrategyMatrix::BandedInverse { coefficients: coefficients.to_vec() })
    }

    /// Creates the banded inverse square root (BISR): `C^-1` has the first `bands` coefficients of
    /// `√(1 - x)`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn banded_inverse_square_root(steps: u64, bands: u64) -> Result<Self, AccountantError> {
        let bands = usize::try_from(bands.min(MAX_STEPS)).unwrap_or(usize::MAX);
        Self::banded_inverse(steps, &series::square_root(bands))
    }

    /// Creates a buffered linear Toeplitz (BLT) strategy of the decays `theta` and the weights
    /// `omega`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn buffered(steps: u64, theta: &[f64], omega: &[f64]) -> Result<Self, AccountantError> {
        let (theta, omega) = (theta.to_vec(), omega.to_vec());
        Self::new(steps, StrategyMatrix::Buffered { theta, omega })
    }

    /// Creates the binary tree.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn tree(steps: u64) -> Result<Self, AccountantError> {
        Self::new(steps, StrategyMatrix::Tree)
    }

    /// Creates a dense strategy from the rows of its lower triangle.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn dense(rows: Vec<Vec<f64>>) -> Result<Self, AccountantError> {
        Self::new(rows.len() as u64, StrategyMatrix::Dense { rows })
    }

    /// Divides every column of `C` by its norm, so that every participation costs the same.
    #[must_use]
    pub fn with_normalized_columns(self) -> Self {
        let written = Written { normalized_columns: true, ..self.0.written.clone() };
        Self(Arc::new(Checked { written, bands: self.0.bands }))
    }

    /// Returns the number of steps of the run.
    pub fn steps(&self) -> u64 {
        self.0.written.steps
    }

    /// Returns the matrix before the normalization of its columns.
    pub fn matrix(&self) -> &StrategyMatrix {
        &self.0.written.matrix
    }

    /// Returns whether the columns are divided by their norms.
    pub fn has_normalized_columns(&self) -> bool {
        self.0.written.normalized_columns
    }

    /// Returns the number of bands: the entry of row `i` and column `j` is 0 if `i - j` is at least
    /// this number.
    pub fn bands(&self) -> u64 {
        self.0.bands
    }

    pub(super) fn len(&self) -> usize {
        self.steps() as usize
    }

    /// Returns the first `n` coefficients of `C` before the normalization of its columns, or `None`
    /// if it is not Toeplitz. Zeros at the end are left out.
    pub(super) fn toeplitz(&self, n: usize) -> Option<Vec<f64>> {
        let first = |all: &[f64]| all[..all.len().min(n)].to_vec();
        match self.matrix() {
            StrategyMatrix::Identity => Some(first(&[1.0])),
            StrategyMatrix::OptimalToeplitz => Some(series::inverse_square_root(n)),
            StrategyMatrix::BandedToeplitz { coefficients } => Some(first(coefficients)),
            StrategyMatrix::BandedInverse { coefficients } => {
                Some(series::inverse(coefficients, n))
            }
            StrategyMatrix::Buffered { theta, omega } => Some(series::buffered(theta, omega, n)),
            StrategyMatrix::Tree | StrategyMatrix::Dense { .. } => None,
        }
    }

    /// Returns the first `n` coefficients of `C^-1` before the normalization of the columns of `C`,
    /// or `None` if it is not Toeplitz.
    pub(super) fn toeplitz_inverse(&self, n: usize) -> Option<Vec<f64>> {
        match self.matrix() {
            StrategyMatrix::OptimalToeplitz => Some(series::square_root(n)),
            StrategyMatrix::BandedInverse { coefficients } => {
                let mut inverse = coefficients[..coefficients.len().min(n)].to_vec();
                inverse.resize(n, 0.0);
                Some(inverse)
            }
            StrategyMatrix::Buffered { theta, omega } => {
                Some(series::buffered_inverse(theta, omega, n))
            }
            _ => self.toeplitz(n).map(|coefficients| series::inverse(&coefficients, n)),
        }
    }

    /// Returns the coefficients of a Toeplitz strategy before the normalization of its columns, or
    /// `None` for a tree or a dense strategy. Zeros at the end are left out.
    pub fn coefficients(&self) -> Option<Vec<f64>> {
        self.toeplitz(self.len())
    }
}

impl From<Strategy> for Written {
    fn from(strategy: Strategy) -> Self {
        strategy.0.written.clone()
    }
}

impl TryFrom<Written> for Strategy {
    type Error = AccountantError;

    fn try_from(written: Written) -> Result<Self, AccountantError> {
        let limit = match written.matrix {
            StrategyMatrix::Dense { .. } => MAX_DENSE_STEPS,
            _ => MAX_STEPS,
        };
        if written.steps == 0 || written.steps > limit {
            return Err(AccountantError::invalid(
                "steps",
                format!("must be between 1 and {limit} for this kind, got {}", written.steps),
            ));
        }
        let bands = check_matrix(written.steps, &written.matrix)?;
        Ok(Self(Arc::new(Checked { written, bands })))
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.matrix() {
            StrategyMatrix::Identity => f.write_str("identity")?,
            StrategyMatrix::OptimalToeplitz => f.write_str("optimal Toeplitz")?,
            StrategyMatrix::BandedToeplitz { coefficients } => {
                write!(f, "banded Toeplitz of {} bands", coefficients.len())?;
            }
            StrategyMatrix::BandedInverse { coefficients } => {
                write!(f, "banded inverse of {} bands", coefficients.len())?;
            }
            StrategyMatrix::Buffered { theta, .. } => {
                write!(f, "buffered linear Toeplitz of {} buffers", theta.len())?;
            }
            StrategyMatrix::Tree => f.write_str("binary tree")?,
            StrategyMatrix::Dense { .. } => f.write_str("dense")?,
        }
        if self.has_normalized_columns() {
            f.write_str(" with normalized columns")?;
        }
        write!(f, ", {} steps", self.steps())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn strategy_survives_json_bit_for_bit() {
        for strategy in [
            Strategy::identity(7).unwrap(),
            Strategy::optimal_toeplitz(7).unwrap().with_normalized_columns(),
            Strategy::banded_toeplitz(7, &[1.0 / 3.0, 0.1 + 0.2]).unwrap(),
            Strategy::banded_inverse_square_root(7, 4).unwrap(),
            Strategy::buffered(7, &[0.9, 1.0 / 7.0], &[0.1, 0.7]).unwrap(),
            Strategy::tree(7).unwrap(),
            Strategy::dense(vec![vec![1.0], vec![-1.0 / 3.0, 2.0]]).unwrap(),
        ] {
            let text = serde_json::to_string(&strategy).unwrap();
            assert_eq!(serde_json::from_str::<Strategy>(&text).unwrap(), strategy, "{text}");
        }
    }

    #[test]
    fn impossible_strategies_are_refused_from_json_too() {
        let refusal = |result: Result<Strategy, AccountantError>| result.unwrap_err().to_string();
        for (result, part) in [
            (Strategy::identity(0), "got 0"),
            (Strategy::identity(1 << 60), "10000000"),
            (Strategy::banded_toeplitz(4, &[]), "got 0"),
            (Strategy::banded_toeplitz(2, &[1.0, 0.5, 0.2]), "got 3"),
            (Strategy::banded_toeplitz(4, &[-1.0]), "positive number, got -1"),
            (Strategy::banded_toeplitz(4, &[1.0, f64::NAN]), "finite, got NaN"),
            (Strategy::banded_toeplitz(400, &[1.0, 3.0]), "bounded inverse"),
            // Their squares overflow, and the sensitivity would be lost.
            (Strategy::banded_toeplitz(10, &[1e200]), "numbers up to 1e30"),
            (Strategy::dense(vec![vec![1.0], vec![1e200, 1.0]]), "numbers up to 1e30"),
            (Strategy::buffered(4, &[0.5], &[]), "got 1 and 0"),
            (Strategy::buffered(4, &[1.5], &[0.1]), "between 0 and 1, got 1.5"),
            (Strategy::dense(vec![vec![1.0], vec![1.0]]), "row 1 has 1 entries"),
            (Strategy::dense(vec![vec![0.0]]), "diagonal without zeros, got 0"),
        ] {
            let error = refusal(result);
            assert!(error.contains(part), "{part}: {error}");
        }
        let text = serde_json::to_string(&Strategy::identity(3).unwrap()).unwrap();
        for (from, to) in [
            ("\"steps\":3", "\"steps\":0"),
            ("identity", "shuffle"),
            ("\"steps\"", "\"a\":1,\"steps\""),
        ] {
            let changed = text.replacen(from, to, 1);
            assert!(serde_json::from_str::<Strategy>(&changed).is_err(), "{changed}");
        }
    }

    #[test]
    fn bands_are_the_width_of_the_matrix() {
        let bands = |strategy: Result<Strategy, AccountantError>| strategy.unwrap().bands();
        assert_eq!(bands(Strategy::identity(9)), 1);
        assert_eq!(bands(Strategy::banded_toeplitz(9, &[1.0, 0.5, 0.0])), 2);
        assert_eq!(bands(Strategy::optimal_toeplitz(9)), 9);
        assert_eq!(bands(Strategy::tree(9)), 8);
        assert_eq!(bands(Strategy::banded_inverse(9, &[1.0, -0.5])), 9);
        let rows = vec![vec![1.0], vec![0.5, 1.0], vec![0.0, 0.5, 1.0]];
        assert_eq!(bands(Strategy::dense(rows)), 2);
    }
}
