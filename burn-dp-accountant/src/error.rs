//! The error type of the crate.

use std::fmt;

/// The reason why there is no answer. Each message names the value and a remedy.
#[non_exhaustive]
pub enum AccountantError {
    /// An argument is outside its domain.
    InvalidArgument {
        /// Name of the argument, as in the signature.
        name: &'static str,
        /// The expected domain and the given value.
        reason: String,
    },
    /// The accountant has no answer for this event under this neighboring relation. Events are
    /// never skipped: there is no result for the other events either.
    Unsupported {
        /// The event, as in [`DpEvent`](crate::DpEvent).
        event: String,
        /// Why there is no answer, and an alternative.
        reason: String,
    },
    /// No parameter in the searched range meets the budget.
    Infeasible {
        /// The search, and the reason why it found nothing.
        reason: String,
    },
    /// A ledger or statement has a format that this version cannot read or write.
    Format {
        /// The fault of the text.
        reason: String,
        /// The error of the JSON parser, if there is one.
        source: Option<serde_json::Error>,
    },
    /// Releases would exceed the budget of a filter. They must not take place.
    BudgetExceeded {
        /// The releases, the budget, and the used part of it.
        reason: String,
    },
    /// Two ledgers cannot be merged, or two statements cannot be compared.
    Mismatch {
        /// The difference between them.
        reason: String,
    },
    /// A file could not be read or written.
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The operating system provides no entropy. There is no weaker fallback.
    Entropy {
        /// The message of the operating system.
        reason: String,
    },
    /// The numerical method did not reach its accuracy, and there is no valid looser answer.
    Numerical {
        /// What did not converge.
        reason: String,
    },
}

impl AccountantError {
    pub(crate) fn invalid(name: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { name, reason: reason.into() }
    }

    pub(crate) fn unsupported(event: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported { event: event.into(), reason: reason.into() }
    }

    pub(crate) fn infeasible(reason: impl Into<String>) -> Self {
        Self::Infeasible { reason: reason.into() }
    }

    pub(crate) fn numerical(reason: impl Into<String>) -> Self {
        Self::Numerical { reason: reason.into() }
    }
}

/// The message, because a `main` that returns the error prints it.
impl fmt::Debug for AccountantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AccountantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { name, reason } => write!(f, "{name} {reason}"),
            Self::Unsupported { event, reason } => write!(f, "no bound for {event}: {reason}"),
            Self::Infeasible { reason } => write!(f, "no parameter meets the budget: {reason}"),
            Self::Format { reason, source: Some(source) } => write!(f, "{reason}: {source}"),
            Self::Format { reason, source: None } => write!(f, "{reason}"),
            Self::BudgetExceeded { reason } => write!(f, "the budget is exceeded: {reason}"),
            Self::Mismatch { reason } => f.write_str(reason),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Entropy { reason } => {
                write!(f, "there is no entropy of the operating system: {reason}")
            }
            Self::Numerical { reason } => write!(f, "not converged: {reason}"),
        }
    }
}

impl std::error::Error for AccountantError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Format { source: Some(source), .. } => Some(source),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
