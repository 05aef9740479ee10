//! Atomic replacement of files.

use std::io::Write;
use std::path::Path;

use crate::error::AccountantError;

/// Writes a file atomically: after a crash it has the old or the new content.
///
/// # Errors
///
/// Returns [`AccountantError::Io`] with the path if the file cannot be written.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), AccountantError> {
    let io = |source| AccountantError::Io { path: path.to_path_buf(), source };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
    file.write_all(text.as_bytes()).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(())
}
