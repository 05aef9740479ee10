//! Counts of units whose norm is at most a threshold, released beside the sum.

use crate::DpError;
use crate::error::positive;

/// Part of the expected batch size that the noise on a count has as its standard deviation, unless
/// another one is given.
const DEFAULT_PART: f64 = 1.0 / 20.0;

/// A count of the units whose norm is at most [`at`](Self::at), or the mean of the norms up to there.
///
/// # Privacy
///
/// What is released is `Σ_i (b_i - ½)` with a number `b_i` from 0 to 1 that unit i contributes: each
/// moves it by ½ at most, so its sensitivity is ½ when a unit is added or removed and 1 when one is
/// replaced. A unit whose norm is not finite is above every threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// The group whose norm is looked at; nothing for the whole gradient.
    pub group: Option<usize>,
    /// The threshold.
    pub at: f64,
    /// What a unit contributes.
    pub counted: Counted,
}

/// What a unit contributes to a [`Count`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// 1 if its norm is at most the threshold, else 0. The default.
    #[default]
    AtMost,
    /// Its norm over the threshold, at most 1: the fraction is the mean of the norms, cut at the
    /// threshold, over the threshold.
    Norm,
}

impl Count {
    /// Units whose whole gradient is no longer than `at`.
    pub fn whole(at: f64) -> Self {
        Self { group: None, at, counted: Counted::default() }
    }

    /// Units whose gradient in a group is no longer than `at`.
    pub fn of_group(group: usize, at: f64) -> Self {
        Self { group: Some(group), ..Self::whole(at) }
    }

    /// The same with another contribution of each unit.
    pub fn counting(self, counted: Counted) -> Self {
        Self { counted, ..self }
    }

    /// `b_i` of a unit with this norm; nothing for one whose norm is not finite. Always from 0 to 1.
    pub(super) fn of_unit(&self, norm: Option<f64>) -> f64 {
        match (self.counted, norm) {
            (Counted::AtMost, Some(norm)) if norm <= self.at => 1.0,
            (Counted::AtMost, _) => 0.0,
            (Counted::Norm, Some(norm)) if norm < self.at => norm / self.at,
            (Counted::Norm, _) => 1.0,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    // Sharp edge: what a unit contributes to a count is bounded, whatever its norm.
    #[test]
    fn no_norm_contributes_less_than_nothing_or_more_than_one() {
        for at in [f64::MIN_POSITIVE, 1e-9, 1.0, 1e60, f64::MAX] {
            for counted in [Counted::AtMost, Counted::Norm] {
                let count = Count::whole(at).counting(counted);
                let norms =
                    [0.0, f64::MIN_POSITIVE, at / 3.0, at, 2.0 * at, f64::MAX, f64::INFINITY];
                for norm in norms.into_iter().map(Some).chain([None, Some(f64::NAN)]) {
                    let found = count.of_unit(norm);
                    assert!((0.0..=1.0).contains(&found), "{counted:?} {at} {norm:?}: {found}");
                }
            }
        }
    }

    #[test]
    fn a_norm_counts_in_proportion_up_to_the_threshold() {
        let count = Count::of_group(2, 4.0).counting(Counted::Norm);
        for (norm, expected) in [(0.0, 0.0), (1.0, 0.25), (4.0, 1.0), (9.0, 1.0)] {
            assert_eq!(count.of_unit(Some(norm)), expected);
        }
        assert_eq!(count.of_unit(None), 1.0);
        assert_eq!(Count::whole(4.0).of_unit(Some(4.0)), 1.0);
        assert_eq!(Count::whole(4.0).of_unit(Some(4.1)), 0.0);
    }
}
