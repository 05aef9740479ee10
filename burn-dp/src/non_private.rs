//! Values derived from private data without noise.

use std::fmt;

/// A value that depends on private data and was released without noise.
///
/// Only [`reveal`](Self::reveal) returns it. There is no `Display`, and `Debug` hides the value.
///
/// # Privacy
///
/// Printing, logging, or publishing the value is a release that no ledger contains.
#[derive(Clone, Copy, PartialEq)]
pub struct NonPrivate<T>(T);

impl<T> NonPrivate<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    #[cfg(feature = "train")]
    pub(crate) fn look(&self) -> &T {
        &self.0
    }

    /// Returns the value, for people with access to the data.
    pub fn reveal(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for NonPrivate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonPrivate(..)")
    }
}
