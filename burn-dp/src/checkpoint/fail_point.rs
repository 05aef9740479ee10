//! Where tests end a process.

/// The variable that names the step whose checkpoint ends the process.
const VARIABLE: &str = "BURN_DP_TEST_ABORT_IN_CHECKPOINT";

/// Ends the process if this is the checkpoint that the variable names. Compiled in for debugging
/// only.
pub(crate) fn within_checkpoint(step: u64) {
    if cfg!(debug_assertions) && std::env::var(VARIABLE).is_ok_and(|at| at == step.to_string()) {
        std::process::abort();
    }
}
