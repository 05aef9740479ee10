//! The matrix of a strategy, and the domains of its numbers.

use serde::{Deserialize, Serialize};

use super::super::series;
use super::super::triangle::inverse_of_rows;
use crate::error::AccountantError;

/// Maximum number of buffers.
const MAX_BUFFERS: usize = 64;
/// Maximum number of steps times coefficients, which limits the time of validation.
const MAX_WORK: u64 = 1 << 33;

/// The matrix of a [`Strategy`](super::Strategy), before the normalization of its columns.
///
/// "Toeplitz" means `C[i, j] = c_{i - j}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum StrategyMatrix {
    /// The identity: independent noise.
    Identity,
    /// The Toeplitz square root of the prefix sums, which has the smallest maximal error of one
    /// participation among all Toeplitz strategies. All coefficients follow from the number of
    /// steps.
    OptimalToeplitz,
    /// A Toeplitz matrix with these first coefficients; the others are 0.
    BandedToeplitz {
        /// The coefficients `c_0, c_1, …` of `C`.
        coefficients: Vec<f64>,
    },
    /// A Toeplitz matrix whose inverse has these first coefficients; the others are 0.
    BandedInverse {
        /// The coefficients of `C^-1`.
        coefficients: Vec<f64>,
    },
    /// A buffered linear Toeplitz (BLT) matrix: `c_0 = 1`, `c_k = Σ_i ω_i θ_i^(k-1)`.
    Buffered {
        /// The decay θ of each buffer, between 0 and 1.
        theta: Vec<f64>,
        /// The weight ω of each buffer.
        omega: Vec<f64>,
    },
    /// The binary tree: row `t` (counted from 1) sums the last `2^v` steps, where `2^v` is the
    /// largest power of two that divides `t`. A prefix sum has one noise for each one-bit of `t`.
    Tree,
    /// Any lower-triangular matrix; row `i` has `i + 1` entries.
    Dense {
        /// The rows.
        rows: Vec<Vec<f64>>,
    },
}

/// Checks the numbers of a matrix and returns its number of bands.
pub(super) fn check_matrix(steps: u64, matrix: &StrategyMatrix) -> Result<u64, AccountantError> {
    match matrix {
        StrategyMatrix::Identity => Ok(1),
        StrategyMatrix::OptimalToeplitz => Ok(steps),
        // The first step is in row 2^v, if the run has it.
        StrategyMatrix::Tree => Ok(1 << steps.ilog2()),
        StrategyMatrix::BandedToeplitz { coefficients } => {
            check_series(steps, coefficients)?;
            let last = coefficients.iter().rposition(|&c| c != 0.0).unwrap_or(0);
            Ok(last as u64 + 1)
        }
        StrategyMatrix::BandedInverse { coefficients } => {
            let strategy = check_series(steps, coefficients)?;
            let last = strategy.iter().rposition(|&c| c != 0.0).unwrap_or(0);
            Ok(last as u64 + 1)
        }
        StrategyMatrix::Buffered { theta, omega } => {
            if theta.len() != omega.len() || theta.is_empty() || theta.len() > MAX_BUFFERS {
                return Err(AccountantError::invalid(
                    "theta, omega",
                    format!(
                        "must have equally many numbers, 1 to {MAX_BUFFERS}, got {} and {}",
                        theta.len(),
                        omega.len()
                    ),
                ));
            }
            if let Some(bad) = theta.iter().find(|theta| !(0.0..=1.0).contains(*theta)) {
                return Err(AccountantError::invalid(
                    "theta",
                    format!("must be between 0 and 1, got {bad}"),
                ));
            }
            check_finite("omega", omega)?;
            let n = steps as usize;
            check_size(&series::buffered(theta, omega, n))?;
            check_size(&series::buffered_inverse(theta, omega, n))?;
            Ok(steps)
        }
        StrategyMatrix::Dense { rows } => {
            check_rows(steps, rows)?;
            let widths = rows.iter().enumerate().map(|(i, row)| {
                row.iter().position(|&entry| entry != 0.0).map_or(1, |first| i - first + 1)
            });
            Ok(widths.max().unwrap_or(1) as u64)
        }
    }
}

fn check_finite(name: &'static str, values: &[f64]) -> Result<(), AccountantError> {
    match values.iter().find(|value| !value.is_finite()) {
        Some(bad) => Err(AccountantError::invalid(name, format!("must be finite, got {bad}"))),
        None => Ok(()),
    }
}

/// Checks the coefficients of a Toeplitz matrix and returns the coefficients of its inverse.
fn check_series(steps: u64, coefficients: &[f64]) -> Result<Vec<f64>, AccountantError> {
    let invalid = |reason: String| Err(AccountantError::invalid("coefficients", reason));
    let count = coefficients.len() as u64;
    if count == 0 || count > steps || count.saturating_mul(steps) > MAX_WORK {
        return invalid(format!(
            "must be between 1 and {steps} in number, as the steps, and at most {} for this run, \
             got {count}",
            MAX_WORK / steps
        ));
    }
    check_finite("coefficients", coefficients)?;
    if coefficients[0] <= 0.0 {
        return invalid(format!("must begin with a positive number, got {}", coefficients[0]));
    }
    let inverse = series::inverse(coefficients, steps as usize);
    check_size(coefficients)?;
    check_size(&inverse)?;
    Ok(inverse)
}

/// Checks entries of a matrix or of its inverse: noise is added in single precision, and the
/// squared norm of a column must not overflow, because the sensitivity would be lost.
fn check_size(entries: &[f64]) -> Result<(), AccountantError> {
    match entries.iter().position(|value| !(0.0..=1e30).contains(&value.abs())) {
        Some(step) => Err(AccountantError::invalid(
            "coefficients",
            format!(
                "must belong to a matrix with numbers up to 1e30 and a bounded inverse, but a \
                 coefficient is {:e} at step {step}",
                entries[step]
            ),
        )),
        None => Ok(()),
    }
}

fn check_rows(steps: u64, rows: &[Vec<f64>]) -> Result<(), AccountantError> {
    if rows.len() as u64 != steps {
        return Err(AccountantError::invalid(
            "rows",
            format!("must be as many as the steps, {steps}, got {}", rows.len()),
        ));
    }
    for (i, row) in rows.iter().enumerate() {
        if row.len() != i + 1 {
            return Err(AccountantError::invalid(
                "rows",
                format!(
                    "must be a lower triangle: row {i} has {} entries, not {}",
                    row.len(),
                    i + 1
                ),
            ));
        }
        check_finite("rows", row)?;
        if row[i] == 0.0 {
            return Err(AccountantError::invalid(
                "rows",
                format!("must have a diagonal without zeros, got 0 in row {i}"),
            ));
        }
    }
    rows.iter().try_for_each(|row| check_size(row))?;
    inverse_of_rows(rows).iter().try_for_each(|row| check_size(row))
}
