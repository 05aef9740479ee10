//! Points where tests end a process or simulate a full disk.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that names the step whose checkpoint ends the process.
const IN_CHECKPOINT: &str = "BURN_DP_TEST_ABORT_IN_CHECKPOINT";

/// The variable with `abort:N`, which ends the process before its operation N on a file, or
/// `full:N`, which makes every write fail from operation N on.
const AT_OPERATION: &str = "BURN_DP_TEST_FAIL_AT_OPERATION";

/// Ends the process if this is the checkpoint that the variable names. Compiled only with debug
/// assertions.
pub(crate) fn within_checkpoint(step: u64) {
    if cfg!(debug_assertions) && std::env::var(IN_CHECKPOINT).is_ok_and(|at| at == step.to_string())
    {
        std::process::abort();
    }
}

/// What an operation on a file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Space on the disk.
    Write,
    /// No space.
    Remove,
}

/// Counts an operation on a file, and fails if a test wants this one to fail. Compiled only with
/// debug assertions.
///
/// # Errors
///
/// Returns an error like the one of a full disk.
pub(crate) fn operation(operation: Operation) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    let Ok(wanted) = std::env::var(AT_OPERATION) else { return Ok(()) };
    let number = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    let at = |kind: &str| wanted.strip_prefix(kind).and_then(|at| at.parse::<u64>().ok());
    if at("abort:") == Some(number) {
        std::process::abort();
    }
    if operation == Operation::Write && at("full:").is_some_and(|at| number >= at) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}
