//! Values that were computed from private data without noise.

use std::fmt;

/// A value that depends on private data and was not released with noise.
///
/// It can be looked at on purpose, with [`reveal`](Self::reveal), and not by accident: it has no
/// `Display`, and its `Debug` hides the value.
///
/// # Privacy
///
/// Printing, logging or publishing the value is a release that no ledger knows of.
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

    /// The value, for whoever may see the data itself.
    pub fn reveal(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for NonPrivate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonPrivate(..)")
    }
}
