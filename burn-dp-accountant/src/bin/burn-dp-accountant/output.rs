//! The output of the commands: text for people, JSON for programs.

use std::path::Path;

use burn_dp_accountant::{AccountantError, PrivacyLedger};
use serde_json::{Value, json};

/// The text of a command, or the error that it prints.
pub(crate) type Output = Result<String, AccountantError>;

/// Returns a JSON value as indented text with a final line break.
pub(crate) fn json_text(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Returns a number as JSON; infinity is the text "inf".
pub(crate) fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { json!("inf") }
}

/// Returns the error of an option with an impossible value.
pub(crate) fn invalid(name: &'static str, reason: impl Into<String>) -> AccountantError {
    AccountantError::InvalidArgument { name, reason: reason.into() }
}

/// Checks that a file to be written is not the file that was read.
///
/// # Errors
///
/// Returns [`AccountantError::InvalidArgument`] if it is.
pub(crate) fn check_distinct(
    name: &'static str,
    written: Option<&Path>,
    read: Option<&Path>,
) -> Result<(), AccountantError> {
    let (Some(written), Some(read)) = (written, read) else { return Ok(()) };
    match (written.canonicalize(), read.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => {
            let reason = format!("{} is the input; give another file", written.display());
            Err(invalid(name, reason))
        }
        _ => Ok(()),
    }
}

/// Returns an error that names the option if the file to be written is the ledger of a run, which
/// may be its only record.
pub(crate) fn check_no_ledger(
    name: &'static str,
    written: Option<&Path>,
) -> Result<(), AccountantError> {
    match written.filter(|path| PrivacyLedger::load(path).is_ok()) {
        None => Ok(()),
        Some(path) => {
            let reason = format!("{} is the ledger of a run; give another file", path.display());
            Err(invalid(name, reason))
        }
    }
}

/// Returns a count, or an error that names its option if it is 0.
pub(crate) fn counted(name: &'static str, count: u64) -> Result<u64, AccountantError> {
    if count == 0 { Err(invalid(name, "must be at least 1, got 0")) } else { Ok(count) }
}

/// Returns the value of an option, or an error that names it.
pub(crate) fn needed(name: &'static str, value: Option<u64>) -> Result<u64, AccountantError> {
    value.ok_or_else(|| invalid(name, "is needed by this sampler"))
}
