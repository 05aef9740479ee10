//! What a check finds.

use std::fmt;

/// A place in a file, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    /// The name of the check.
    pub(crate) check: &'static str,
    message: String,
}

impl Finding {
    /// Creates a finding; lines are counted from 1.
    pub(crate) fn new(
        check: &'static str,
        path: &str,
        line: usize,
        message: impl Into<String>,
    ) -> Self {
        Self { check, path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} [{}]", self.path, self.line, self.message, self.check)
    }
}
