//! Durable operations on files. All writes of checkpoints, logs, and keys are here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::fail_point::{Operation, operation};
use crate::DpError;

/// Returns options to create files that only their owner can read. On Windows a file has the access
/// rights of its folder.
pub(super) fn private_options() -> OpenOptions {
    #[allow(unused_mut)]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes a new file that only its owner can read.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), DpError> {
    let written = operation(Operation::Write)
        .and_then(|()| private_options().write(true).create_new(true).open(path))
        .and_then(|mut file| write_at(&mut file, 0, bytes));
    written.map_err(|error| DpError::io(path, error))
}

/// Writes `bytes` at `offset` to the disk, not only to the cache of the operating system.
pub(super) fn write_at(file: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    // In two parts, between which a test can end the process.
    for part in [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]] {
        operation(Operation::Write)?;
        file.write_all(part)?;
    }
    operation(Operation::Write)?;
    file.sync_all()
}

/// Creates a folder and its parents.
pub(super) fn create(folder: &Path) -> Result<(), DpError> {
    operation(Operation::Write)
        .and_then(|()| fs::create_dir_all(folder))
        .map_err(|error| DpError::io(folder, error))
}

/// Renames a folder.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DpError> {
    operation(Operation::Write)
        .and_then(|()| fs::rename(from, to))
        .map_err(|error| DpError::io(to, error))
}

/// Removes a file if it exists.
pub(super) fn remove(path: &Path) -> Result<(), DpError> {
    match operation(Operation::Remove).and_then(|()| fs::remove_file(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DpError::io(path, error)),
        _ => Ok(()),
    }
}

/// Makes a new, renamed or removed entry of `folder` durable. Windows has no such operation: there,
/// a power failure can undo the last changes of a folder.
pub(super) fn sync(folder: &Path) -> Result<(), DpError> {
    if cfg!(unix) {
        // A path with only a file name has an empty parent.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let synced = operation(Operation::Write)
            .and_then(|()| File::open(folder))
            .and_then(|folder| folder.sync_all());
        synced.map_err(|error| DpError::io(folder, error))?;
    }
    Ok(())
}

/// Makes the entry with this path durable.
pub(super) fn sync_parent(path: &Path) -> Result<(), DpError> {
    path.parent().map_or(Ok(()), sync)
}
