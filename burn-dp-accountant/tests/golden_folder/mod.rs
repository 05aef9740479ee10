//! Where the golden tables are.

use std::path::{Path, PathBuf};

/// The folder that `BURN_DP_GOLDEN` names, or `shared/golden` beside the repository; `None` if there is
/// neither.
pub(crate) fn folder() -> Option<PathBuf> {
    if let Ok(folder) = std::env::var("BURN_DP_GOLDEN") {
        return Some(folder.into());
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
    beside.is_dir().then_some(beside)
}
