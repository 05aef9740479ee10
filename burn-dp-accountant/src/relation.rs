//! The neighbouring relation: which two data sets must be hard to tell apart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which two data sets are neighbours. A noise multiplier is always the standard deviation of the
/// noise over the largest norm `C` that *one unit* can contribute to the released sum; the relation
/// decides the sensitivity that follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeighboringRelation {
    /// One unit more or one unit less. Sensitivity of a clipped sum: `C`. The usual relation of
    /// Poisson sampling.
    AddOrRemoveOne,
    /// One unit exchanged for another; the size of the data set is public. Sensitivity of a clipped
    /// sum: `2C`.
    ReplaceOne,
    /// One unit exchanged for a special one that contributes nothing ("zero-out"). Sensitivity of a
    /// clipped sum: `C`; the size of the data set is public.
    ReplaceSpecial,
}

impl NeighboringRelation {
    /// Sensitivity of a clipped sum in units of the clipping norm: 1, or 2 under
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
