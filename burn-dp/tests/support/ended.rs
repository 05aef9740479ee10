//! How a process ended.

use std::process::ExitStatus;

/// Returns whether a process ended itself with `abort`.
#[cfg(unix)]
pub(crate) fn aborted(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(6)
}

/// Returns whether a process ended itself with `abort`.
#[cfg(windows)]
pub(crate) fn aborted(status: ExitStatus) -> bool {
    // STATUS_STACK_BUFFER_OVERRUN, the code of every fail-fast exception.
    status.code() == Some(0xC000_0409_u32.cast_signed())
}
