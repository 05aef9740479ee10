//! The participation of a unit in a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::strategy::Strategy;
use crate::domain::{check_count, check_probability};
use crate::error::AccountantError;
use crate::rounded::Rounded;

/// The steps of a run in which one unit may take part. The sampler must guarantee it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "snake_case", deny_unknown_fields)]
pub enum Participation {
    /// A unit takes part at most `times` times, in steps that are at least `separation` apart.
    /// Nothing is random, and nothing is amplified.
    AtMost {
        /// Maximum number of participations, at least 1.
        times: u64,
        /// Minimum difference between two steps of one unit, at least 1 (every step).
        separation: u64,
    },
    /// The data is divided into `parts` fixed parts, independently of the values of the units. Step
    /// `t` draws each unit of part `t mod parts` independently with the same probability.
    ///
    /// The strategy must have at most `parts` bands. Then the participations of a unit do not
    /// overlap, and each is one Poisson-sampled Gaussian release ("(Amplified) Banded Matrix
    /// Factorization", Choquette-Choo et al. 2023, on amplification). The parts are regarded as
    /// known.
    CyclicPoisson {
        /// Number of parts, at least 1.
        parts: u64,
        /// Probability that a unit of the part is drawn.
        sampling_probability: f64,
    },
    /// A unit takes part in the steps of one class modulo `period`: the data is used in a fixed
    /// order. Nothing is random, and nothing is amplified.
    FixedOrder {
        /// Number of steps from one participation to the next, at least 1.
        period: u64,
    },
    /// Each unit is in one of `bins` bins, chosen independently and uniformly for the whole run.
    /// Step `t` uses the units of bin `t mod bins`.
    ///
    /// With one band, the run is amplified. With more bands, the certified bound is an allocation
    /// to the number of bins that do not share noise (the bins divided by the bands), or
    /// [`FixedOrder`](Self::FixedOrder), where the bin is assumed to be known. A
    /// [`Simulation`](crate::Simulation) includes the amplification of all bins, for any strategy.
    BallsInBins {
        /// Number of bins, at least 1.
        bins: u64,
    },
    /// Like balls in bins, with an independent choice in each epoch of `bins` steps.
    ///
    /// With one band, each epoch is amplified. With more bands, the run costs as much as
    /// [`AtMost`](Self::AtMost) one participation in each epoch. A
    /// [`Simulation`](crate::Simulation) includes the amplification of Toeplitz strategies with at
    /// most as many bands as bins.
    RandomAllocation {
        /// Number of bins, at least 1.
        bins: u64,
    },
    /// Each unit takes part independently with the same probability, except in the
    /// `separation - 1` steps after one of its steps.
    ///
    /// With one band, the run is amplified like Poisson sampling with this probability, or costs as
    /// much as [`AtMost`](Self::AtMost), whichever is smaller for many steps. With more bands, it
    /// costs as much as [`AtMost`](Self::AtMost). A [`Simulation`](crate::Simulation) includes the
    /// amplification of Toeplitz strategies with at most as many bands as the separation.
    MinSeparation {
        /// Minimum difference between two steps of a unit, at least 1.
        separation: u64,
        /// Probability that a unit takes part, given that it may take part.
        sampling_probability: f64,
    },
}

impl Participation {
    /// Returns the pattern of one participation.
    pub fn once() -> Self {
        Self::AtMost { times: 1, separation: 1 }
    }

    /// Checks the parameters, and that the pattern can be accounted for with `strategy`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a parameter is outside its domain, or the
    /// strategy has more bands than cyclic Poisson sampling has parts.
    pub fn validate_for(&self, strategy: &Strategy) -> Result<(), AccountantError> {
        match *self {
            Self::AtMost { times, separation } => {
                check_count("times", times)?;
                check_count("separation", separation)
            }
            Self::FixedOrder { period } => check_count("period", period),
            Self::BallsInBins { bins } | Self::RandomAllocation { bins } => {
                check_count("bins", bins)
            }
            Self::MinSeparation { separation, sampling_probability } => {
                check_count("separation", separation)?;
                check_probability("sampling_probability", sampling_probability)
            }
            Self::CyclicPoisson { parts, sampling_probability } => {
                check_count("parts", parts)?;
                check_probability("sampling_probability", sampling_probability)?;
                if strategy.bands() > parts {
                    return Err(AccountantError::invalid(
                        "parts",
                        format!(
                            "must be at least the number of bands of the strategy, {}, so that two \
                             participations of a unit do not share noise, got {parts}; use more \
                             parts, fewer bands, or the participation AtMost",
                            strategy.bands()
                        ),
                    ));
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Participation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost { times: 1, .. } => f.write_str("one participation"),
            Self::AtMost { times, separation: 1 } => write!(f, "at most {times} participations"),
            Self::AtMost { times, separation } => {
                write!(f, "at most {times} participations, {separation} steps apart")
            }
            Self::CyclicPoisson { parts, sampling_probability } => write!(
                f,
                "cyclic Poisson sampling of {parts} parts with probability {}",
                Rounded::up(*sampling_probability).with_digits(4).shortest()
            ),
            Self::FixedOrder { period } => write!(f, "every {period} steps, in a fixed order"),
            Self::BallsInBins { bins } => write!(f, "balls in {bins} bins"),
            Self::RandomAllocation { bins } => {
                write!(f, "random allocation to {bins} steps in each epoch")
            }
            Self::MinSeparation { separation, sampling_probability } => write!(
                f,
                "Poisson sampling with probability {} and a separation of {separation} steps",
                Rounded::up(*sampling_probability).with_digits(4).shortest()
            ),
        }
    }
}
