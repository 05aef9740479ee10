//! How often a unit can take part in a run, for all possible draws.

use std::fmt;

/// What a sampler guarantees about the steps in which one unit takes part, for every key.
///
/// Correlated noise needs it, because its sensitivity is a maximum over all possible patterns. It
/// is a guarantee about the worst case and not about probabilities.
///
/// # Privacy
///
/// The pattern is public. It holds for a run from step 0 whose steps are taken in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParticipationPattern {
    /// A unit can take part in every step, and several times in one of them.
    Repeated,
    /// A unit can take part in every step, once in each.
    AnyStep,
    /// A unit takes part at most once in each epoch: steps `0..steps`, `steps..2 * steps`, and so
    /// on. The last step of an epoch and the first step of the next one can follow each other.
    OncePerEpoch {
        /// Number of steps in an epoch.
        steps: u64,
    },
    /// Two steps of a unit are at least this number of steps apart: after a step, the unit is not
    /// in the next `separation - 1` steps.
    Separated {
        /// The smallest difference between two steps of a unit.
        separation: u64,
    },
    /// The steps of a unit are exactly this number of steps apart: the order of the units is the
    /// same in all epochs.
    Periodic {
        /// The difference between one step of a unit and the next.
        period: u64,
    },
}

impl ParticipationPattern {
    /// Returns the largest number of times that a unit takes part in the first `steps` steps, or
    /// `None` if there is no limit.
    pub fn times(self, steps: u64) -> Option<u64> {
        match self {
            Self::Repeated => None,
            Self::AnyStep => Some(steps),
            Self::OncePerEpoch { steps: epoch } => Some(steps.div_ceil(epoch)),
            Self::Separated { separation } => Some(steps.div_ceil(separation)),
            Self::Periodic { period } => Some(steps.div_ceil(period)),
        }
    }

    /// Returns the smallest difference between two steps of a unit; 0 if a unit can take part
    /// several times in one step.
    pub fn separation(self) -> u64 {
        match self {
            Self::Repeated => 0,
            Self::AnyStep => 1,
            Self::OncePerEpoch { .. } => 1,
            Self::Separated { separation } => separation,
            Self::Periodic { period } => period,
        }
    }
}

impl fmt::Display for ParticipationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated => f.write_str("any number of times in each step"),
            Self::AnyStep => f.write_str("at most once in each step"),
            Self::OncePerEpoch { steps } => {
                write!(f, "at most once in each epoch of {steps} steps")
            }
            Self::Separated { separation } => {
                write!(f, "at most once in any {separation} consecutive steps")
            }
            Self::Periodic { period } => write!(f, "every {period} steps"),
        }
    }
}
