//! The folder of the golden tables.

use std::path::{Path, PathBuf};

/// Returns the folder that `BURN_DP_GOLDEN` names, or `shared/golden` next to the repository;
/// `None` if neither exists.
pub(crate) fn folder() -> Option<PathBuf> {
    if let Ok(folder) = std::env::var("BURN_DP_GOLDEN") {
        return Some(folder.into());
    }
    let neighbor = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
    neighbor.is_dir().then_some(neighbor)
}
