//! The lock of a log of releases.

use std::fs::TryLockError;
use std::path::Path;

use crate::DpError;
use crate::optim::releases::Lock;

/// Returns whether the file is locked: two processes that continue one run would release from the
/// same draws.
pub(super) fn locked(path: &Path, tried: Result<(), TryLockError>) -> Result<Lock, DpError> {
    match tried {
        Ok(()) => Ok(Lock::Held),
        Err(TryLockError::WouldBlock) => Err(DpError::saved_state(format!(
            "{} is in use by another process or optimizer of this run; wait until it has ended",
            path.display()
        ))),
        Err(TryLockError::Error(error)) if is_without_locks(&error) => {
            log::warn!(
                "the file system of {} has no locks: make sure that no second process continues \
                 this run at the same time",
                path.display()
            );
            Ok(Lock::Unsupported)
        }
        Err(TryLockError::Error(error)) => Err(DpError::io(path, error)),
    }
}

/// Returns whether a file system has no locks.
fn is_without_locks(error: &std::io::Error) -> bool {
    // ENOLCK, from NFS without a lock service, and ERROR_INVALID_FUNCTION have no `ErrorKind`.
    let code = match std::env::consts::OS {
        "linux" | "android" => Some(37),
        "macos" | "ios" | "freebsd" => Some(77),
        "windows" => Some(1),
        _ => None,
    };
    error.kind() == std::io::ErrorKind::Unsupported
        || (code.is_some() && error.raw_os_error() == code)
}
