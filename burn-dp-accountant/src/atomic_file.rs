//! Atomic replacement of files.

use std::io::Write;
use std::path::Path;

use crate::error::AccountantError;

/// Writes a file atomically: after a crash it has the old or the new content. A link stays a link,
/// and what is not an ordinary file, such as a device, is written to.
///
/// # Errors
///
/// Returns [`AccountantError::Io`] with the path if the file cannot be written.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), AccountantError> {
    let io = |source| AccountantError::Io { path: path.to_path_buf(), source };
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if target.metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(&target, text).map_err(io);
    }
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
    file.write_all(text.as_bytes()).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(&target).map_err(|error| io(error.error))?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| folder.path().join(name));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        replace(&link, "new").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
        // Not a device, which a test of a privileged user could remove.
        let error = replace(folder.path(), "new").unwrap_err().to_string();
        assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
        assert!(folder.path().is_dir());
    }
}
