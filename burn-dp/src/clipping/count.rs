//! Counts of units whose norm is at most a threshold, released beside the sum.

use super::thresholds::positive;
use crate::DpError;

/// Part of the expected batch size that the noise on a count has as its standard deviation, unless
/// another one is given.
const DEFAULT_PART: f64 = 1.0 / 20.0;

/// A count of the units whose norm is at most [`at`](Self::at).
///
/// # Privacy
///
/// What is released is `Σ_i (b_i - ½)` with `b_i = 1` for a unit at or below the threshold: every unit
/// moves it by ½, so its sensitivity is ½ when a unit is added or removed and 1 when one is replaced. A
/// unit whose norm is not finite is above every threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// The group whose norm is looked at; nothing for the whole gradient.
    pub group: Option<usize>,
    /// The threshold.
    pub at: f64,
}

impl Count {
    /// Units whose whole gradient is no longer than `at`.
    pub fn whole(at: f64) -> Self {
        Self { group: None, at }
    }

    /// Units whose gradient in a group is no longer than `at`.
    pub fn of_group(group: usize, at: f64) -> Self {
        Self { group: Some(group), at }
    }
}

/// How much noise the counts of a step have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CountNoise {
    /// The standard deviation σ_b on each count.
    Std(f64),
    /// The standard deviation as a part of the expected batch size. The default, with 1/20.
    PartOfBatch(f64),
    /// The share of the step's cost, z⁻², that all counts together may use; between 0 and 1. It is kept
    /// exactly.
    Share(f64),
}

impl Default for CountNoise {
    fn default() -> Self {
        Self::PartOfBatch(DEFAULT_PART)
    }
}

impl CountNoise {
    pub(super) fn check(self) -> Result<(), DpError> {
        match self {
            Self::Std(std) => positive("count_noise", std),
            Self::PartOfBatch(part) => positive("count_noise as a part of the batch", part),
            Self::Share(share) if share > 0.0 && share < 1.0 => Ok(()),
            Self::Share(share) => Err(DpError::invalid(
                "count_share",
                format!("must be between 0 and 1 (exclusive), got {share}"),
            )),
        }
    }
}

impl std::fmt::Display for CountNoise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Std(std) => write!(f, "noise of standard deviation {std} on each count"),
            Self::PartOfBatch(part) => {
                write!(
                    f,
                    "noise of standard deviation {part} times the expected batch on each count"
                )
            }
            Self::Share(share) => write!(f, "counts use {share} of the cost of a step"),
        }
    }
}
