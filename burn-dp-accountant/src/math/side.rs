//! The side of a bound.

/// The side of the true value that a bound is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The bound is never above the true value.
    Lower,
    /// The bound is never below the true value.
    Upper,
}
