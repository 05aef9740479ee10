//! The searches of the families of strategies.

use std::fmt;

use super::super::series;
use super::super::strategy::Strategy;
use super::toeplitz::{BandedMatrix, Participations};
use super::{StrategySearch, buffered, dense, toeplitz};
use crate::domain::check_count;
use crate::error::AccountantError;

/// Maximum number of bands in a search; the time grows with its square.
const MAX_BANDS: u64 = 1_024;

/// A family of strategies that a search minimizes the loss over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrategyFamily {
    /// Banded Toeplitz matrices.
    BandedToeplitz {
        /// Number of bands.
        bands: u64,
    },
    /// Toeplitz matrices with a banded inverse.
    BandedInverse {
        /// Number of bands of the inverse.
        bands: u64,
    },
    /// Buffered linear Toeplitz (BLT) matrices.
    Buffered {
        /// Number of buffers; without it, buffers are added while the loss falls.
        buffers: Option<u64>,
    },
    /// All lower-triangular matrices.
    Dense,
}

impl fmt::Display for StrategyFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BandedToeplitz { bands } => write!(f, "banded-{bands}"),
            Self::BandedInverse { bands } => write!(f, "banded-inverse-{bands}"),
            Self::Buffered { buffers: Some(buffers) } => write!(f, "blt-{buffers}"),
            Self::Buffered { buffers: None } => f.write_str("blt"),
            Self::Dense => f.write_str("dense"),
        }
    }
}

impl StrategySearch {
    /// Returns the best strategy of a family.
    ///
    /// # Errors
    ///
    /// Returns the error of the search of the family.
    pub fn run(&self, family: StrategyFamily) -> Result<Strategy, AccountantError> {
        match family {
            StrategyFamily::BandedToeplitz { bands } => self.banded_toeplitz(bands),
            StrategyFamily::BandedInverse { bands } => self.banded_inverse(bands),
            StrategyFamily::Buffered { buffers: Some(buffers) } => self.buffered(buffers),
            StrategyFamily::Buffered { buffers: None } => self.buffered_with_any_buffers(),
            StrategyFamily::Dense => self.dense(),
        }
    }

    /// Returns the best banded Toeplitz strategy of `bands` bands; its first column has norm 1.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `bands` is 0, above the number of steps, or
    /// above 1,024.
    pub fn banded_toeplitz(&self, bands: u64) -> Result<Strategy, AccountantError> {
        let start = self.root_of_workload(bands)?;
        let is_separate = self.times == 1 || self.separation >= bands;
        let candidates = self.toeplitz_candidates(start, BandedMatrix::Strategy, is_separate);
        let candidates = candidates.into_iter().map(|coefficients| {
            let norm = coefficients.iter().map(|c| c * c).sum::<f64>().sqrt();
            let unit: Vec<f64> = coefficients.iter().map(|c| c / norm).collect();
            Strategy::banded_toeplitz(self.steps, &unit)
        });
        self.best_of(candidates.flatten())
    }

    /// Returns the best strategy whose inverse has `bands` bands, with a first coefficient of 1.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `bands` is 0, above the number of steps, or
    /// above 1,024.
    pub fn banded_inverse(&self, bands: u64) -> Result<Strategy, AccountantError> {
        let root = self.root_of_workload(bands)?;
        let start = series::inverse(&root, root.len());
        let is_separate = self.times == 1;
        let candidates = self.toeplitz_candidates(start, BandedMatrix::Inverse, is_separate);
        let candidates = candidates.into_iter();
        let candidates =
            candidates.map(|coefficients| Strategy::banded_inverse(self.steps, &coefficients));
        self.best_of(candidates.flatten())
    }

    /// Returns the start and the results of searches. Where the sensitivity is smooth, one search
    /// is enough. Otherwise a search with its bound, which is not smooth, follows from both.
    fn toeplitz_candidates(
        &self,
        start: Vec<f64>,
        side: BandedMatrix,
        is_separate: bool,
    ) -> Vec<Vec<f64>> {
        let search =
            |start: &[f64], participations| toeplitz::search(self, start, side, participations);
        let found = search(&start, Participations::Regular);
        let mut candidates = vec![start, found];
        if !is_separate {
            let starts = candidates.clone();
            candidates.extend(starts.iter().map(|at| search(at, Participations::Majorant)));
        }
        candidates
    }

    /// Returns the first coefficients of the square root of the workload. With all coefficients it
    /// is the optimal Toeplitz strategy.
    fn root_of_workload(&self, bands: u64) -> Result<Vec<f64>, AccountantError> {
        check_count("bands", bands)?;
        if bands > self.steps.min(MAX_BANDS) {
            return Err(AccountantError::invalid(
                "bands",
                format!(
                    "must be at most the number of steps, {}, and at most {MAX_BANDS} in a search, \
                     got {bands}",
                    self.steps
                ),
            ));
        }
        let mut workload = vec![0.0; bands as usize];
        workload[0] = 1.0;
        // The start of a search: the workload of constant rates.
        self.workload.without_learning_rates().apply(0, &mut workload);
        if workload[0] <= 0.0 {
            return Err(AccountantError::invalid(
                "workload",
                format!("must begin with a positive coefficient in a search, got {}", workload[0]),
            ));
        }
        Ok(series::square_root_of(&workload, workload.len()))
    }

    /// Returns the best buffered linear Toeplitz (BLT) strategy of `buffers` buffers, with decays
    /// between 0 and 1 and positive weights.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `buffers` is 0 or above 16.
    pub fn buffered(&self, buffers: u64) -> Result<Strategy, AccountantError> {
        if !(1..=buffered::MAX_BUFFERS).contains(&buffers) {
            return Err(AccountantError::invalid(
                "buffers",
                format!("must be between 1 and {}, got {buffers}", buffered::MAX_BUFFERS),
            ));
        }
        let mut best = buffered::search(self, 1, None)?;
        for count in 2..=buffers {
            best = buffered::search(self, count, Some(&best))?;
        }
        Ok(best)
    }

    /// Returns the best buffered linear Toeplitz (BLT) strategy. Buffers are added while the loss
    /// falls by at least 0.1%.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Numerical`] if an error overflows.
    pub fn buffered_with_any_buffers(&self) -> Result<Strategy, AccountantError> {
        let mut best = buffered::search(self, 1, None)?;
        let mut least = self.loss_of(&best)?;
        for count in 2..=buffered::MAX_BUFFERS {
            let found = buffered::search(self, count, Some(&best))?;
            let loss = self.loss_of(&found)?;
            if loss > least * (1.0 - 1e-3) {
                break;
            }
            (best, least) = (found, loss);
        }
        Ok(best)
    }

    /// Returns the best dense strategy.
    ///
    /// With one participation and in a fixed order it is the best of all strategies:
    /// [`dense_lower_bound`](Self::dense_lower_bound) is its loss. With a minimum separation it is
    /// the better one of the best strategy with as many bands as the separation and the best
    /// strategy of one participation.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] for more than 128 steps, or more than 2,500
    /// pairs of steps in which one unit may take part.
    pub fn dense(&self) -> Result<Strategy, AccountantError> {
        dense::search(self)
    }

    /// Returns a lower bound on the loss of every strategy, by duality.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`dense`](Self::dense).
    pub fn dense_lower_bound(&self) -> Result<f64, AccountantError> {
        dense::lower_bound(self)
    }
}
