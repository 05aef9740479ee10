//! Files that get their name when they are complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::NamedTempFile;

/// Prefix of the name of an incomplete file, which a killed process can leave behind.
pub(crate) const PREFIX: &str = ".burn-dp-incomplete-";

/// The variable with the number of the file from which on a test makes every write fail.
const FULL_AT_FILE: &str = "BURN_DP_TEST_FULL_AT_FILE";

/// A file without its final name. It is removed unless it is published.
#[derive(Debug)]
pub(crate) struct Incomplete {
    file: NamedTempFile,
    path: PathBuf,
}

impl Incomplete {
    /// Creates an empty file next to `path`.
    ///
    /// # Errors
    ///
    /// Returns the error of the folder.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        #[cfg(unix)]
        // As of an ordinary file, because other users also read results: the system applies the
        // user's mask.
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        Ok(Self { file: builder.tempfile_in(folder)?, path: path.into() })
    }

    /// Creates a file with content, which is on disk.
    ///
    /// # Errors
    ///
    /// Returns the error of the folder or of the disk.
    pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<Self> {
        let mut file = Self::create(path)?;
        file.file.write_all(content)?;
        file.on_disk()
    }

    /// Creates a file that another writer fills, which is then on disk.
    ///
    /// # Errors
    ///
    /// Returns the error of the folder, of the disk, or of `fill`.
    pub(crate) fn filled<E: From<io::Error>>(
        path: &Path,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Self, E> {
        let file = Self::create(path)?;
        fill(file.file.path())?;
        Ok(file.on_disk()?)
    }

    fn on_disk(self) -> io::Result<Self> {
        fail_point()?;
        self.file.as_file().sync_all()?;
        Ok(self)
    }

    /// Returns the final name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to its final name, replacing any earlier file with this name.
    ///
    /// # Errors
    ///
    /// Returns the error of the folder.
    pub(crate) fn publish(self) -> io::Result<()> {
        self.file.persist(&self.path).map(|_| ()).map_err(|error| error.error)
    }
}

/// Fails like a full disk if a test wants this file to fail. Compiled only with debug assertions.
fn fail_point() -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    let Ok(first) = std::env::var(FULL_AT_FILE) else { return Ok(()) };
    let number = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    match first.parse::<u64>() {
        Ok(first) if number >= first => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}
