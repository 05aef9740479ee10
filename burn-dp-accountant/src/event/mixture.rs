//! Gaussian releases whose mean depends on a random participation.

use serde::{Deserialize, Serialize};

use crate::domain::{check_count, check_positive, check_probability};
use crate::error::AccountantError;

/// A finite mixture of Gaussian distributions with given means, against the Gaussian of mean 0: the
/// hardest pair of a release in which the participation of a unit is random.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianMixture {
    /// Noise standard deviation over the clipping threshold.
    pub noise_multiplier: f64,
    /// Probability of each mean; the sum is 1.
    pub weights: Vec<f64>,
    /// Means in units of the clipping threshold, all of one length.
    pub means: Vec<Vec<f64>>,
}

/// Gaussian releases over several steps, with noise correlated by a lower-triangular Toeplitz
/// strategy, in which a unit takes part at random steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternedGaussian {
    /// The steps in which a unit takes part.
    pub participation: RandomParticipation,
    /// Number of steps.
    pub steps: u64,
    /// First column of the strategy, without zeros at the end: `[1.0]` for independent noise. The
    /// coefficients are not negative, the first one is positive.
    pub column: Vec<f64>,
    /// Noise standard deviation over the clipping threshold, before the correlation.
    pub noise_multiplier: f64,
}

/// Distribution of the steps in which a unit takes part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RandomParticipation {
    /// One uniformly random step of the first `cycle` steps, and every `cycle` steps after it.
    BallsInBins {
        /// Number of bins.
        cycle: u64,
    },
    /// A uniformly random one of `cycle` parts of the data; step `t` draws each unit of part
    /// `t mod cycle` with the same probability.
    CyclicPoisson {
        /// Number of parts.
        cycle: u64,
        /// Probability that a unit of the part is drawn.
        sampling_probability: f64,
    },
    /// Each step draws each unit with the same probability, except during the `separation - 1`
    /// steps after it was drawn.
    MinimumSeparation {
        /// Smallest distance between two steps of one unit.
        separation: u64,
        /// Probability that a unit is drawn that may be drawn.
        sampling_probability: f64,
        /// Whether the first step is in the stationary state of the process.
        warm_start: bool,
    },
    /// A uniformly random set of this many steps.
    Subset {
        /// Number of steps in which a unit takes part.
        participations: u64,
    },
}

impl GaussianMixture {
    /// Checks the parameters.
    pub(super) fn validate(&self) -> Result<(), AccountantError> {
        check_positive("noise_multiplier", self.noise_multiplier)?;
        let total: f64 = self.weights.iter().sum();
        let weights = self.weights.iter().all(|w| *w > 0.0) && (total - 1.0).abs() <= 1e-9;
        if !weights || self.weights.len() != self.means.len() {
            return Err(AccountantError::invalid(
                "weights",
                format!(
                    "must be positive, one for each of {} means, and add up to 1, got {} with sum \
                     {total}",
                    self.means.len(),
                    self.weights.len()
                ),
            ));
        }
        let length = self.means.first().map_or(0, Vec::len);
        let regular = |mean: &Vec<f64>| mean.len() == length && mean.iter().all(|m| m.is_finite());
        if length == 0 || !self.means.iter().all(regular) {
            return Err(AccountantError::invalid(
                "means",
                "must be finite vectors of one length, at least 1",
            ));
        }
        Ok(())
    }
}

impl PatternedGaussian {
    /// Checks the parameters.
    pub(super) fn validate(&self) -> Result<(), AccountantError> {
        check_positive("noise_multiplier", self.noise_multiplier)?;
        check_count("steps", self.steps)?;
        let sound = self.column.iter().all(|c| *c >= 0.0 && c.is_finite());
        if !sound || self.column.first().is_none_or(|c| *c <= 0.0) {
            return Err(AccountantError::invalid(
                "column",
                "must begin with a positive number and contain no negative one: only then the \
                 contributions of one unit add up to the worst case",
            ));
        }
        let bands = self.column.len() as u64;
        let apart = |name: &'static str, distance: u64| {
            if bands <= distance {
                return Ok(());
            }
            Err(AccountantError::invalid(
                name,
                format!(
                    "must be at least the number of coefficients, {bands}, so that the \
                     contributions of one unit do not overlap, got {distance}; use fewer bands"
                ),
            ))
        };
        match self.participation {
            RandomParticipation::BallsInBins { cycle } => check_count("cycle", cycle),
            RandomParticipation::CyclicPoisson { cycle, sampling_probability } => {
                check_count("cycle", cycle)?;
                check_probability("sampling_probability", sampling_probability)?;
                apart("cycle", cycle)
            }
            RandomParticipation::MinimumSeparation { separation, sampling_probability, .. } => {
                check_count("separation", separation)?;
                check_probability("sampling_probability", sampling_probability)?;
                apart("separation", separation)
            }
            RandomParticipation::Subset { participations } => {
                apart("column", 1)?;
                if (1..=self.steps).contains(&participations) {
                    return Ok(());
                }
                Err(AccountantError::invalid(
                    "participations",
                    format!("must be from 1 to steps = {}, got {participations}", self.steps),
                ))
            }
        }
    }

    /// Returns the norm of the first column: the sensitivity of one participation.
    pub(crate) fn column_norm(&self) -> f64 {
        self.column.iter().map(|c| c * c).sum::<f64>().sqrt()
    }
}
