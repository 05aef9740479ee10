//! The direction of a neighboring relation.

/// The neighbor that is `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `P` is the data set with the unit.
    Remove,
    /// `P` is the data set without the unit.
    Add,
}
