//! The neighboring relation between data sets.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The neighboring relation: the pairs of data sets that the mechanism must make indistinguishable.
///
/// A noise multiplier is always the standard deviation of the noise over the largest norm `C` (the
/// clipping threshold) that *one unit* can contribute to the released sum. The relation determines
/// the sensitivity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeighboringRelation {
    /// One unit is added or removed. The sensitivity of a clipped sum is `C`. This is the usual
    /// relation for Poisson sampling.
    AddOrRemoveOne,
    /// One unit is replaced by another; the size of the data set is public. The sensitivity of a
    /// clipped sum is `2C`.
    ReplaceOne,
    /// One unit is replaced by a special unit that contributes nothing ("zero-out"); the size of
    /// the data set is public. The sensitivity of a clipped sum is `C`.
    ReplaceSpecial,
}

impl NeighboringRelation {
    /// Returns the sensitivity of a clipped sum in units of the clipping threshold: 1, or 2 under
    /// [`ReplaceOne`](Self::ReplaceOne).
    pub fn sensitivity(self) -> f64 {
        match self {
            Self::AddOrRemoveOne | Self::ReplaceSpecial => 1.0,
            Self::ReplaceOne => 2.0,
        }
    }
}

impl fmt::Display for NeighboringRelation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddOrRemoveOne => "add or remove one unit",
            Self::ReplaceOne => "replace one unit",
            Self::ReplaceSpecial => "replace one unit by one that contributes nothing",
        })
    }
}
