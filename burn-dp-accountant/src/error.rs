//! The error type of the crate.

use std::fmt;

/// Why an accountant refused. Each message names the value and the way out.
#[derive(Debug)]
#[non_exhaustive]
pub enum AccountantError {
    /// An argument outside of its domain.
    InvalidArgument {
        /// Name of the argument, as in the signature.
        name: &'static str,
        /// What was given, and what is expected instead.
        reason: String,
    },
}

impl fmt::Display for AccountantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { name, reason } => write!(f, "{name} {reason}"),
        }
    }
}

impl std::error::Error for AccountantError {}
