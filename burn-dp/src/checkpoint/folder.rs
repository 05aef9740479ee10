//! Files that only their owner can read, down to the disk.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::DpError;

/// Writes a new file that only its owner can read.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), DpError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| DpError::io(path, error))
}

/// Makes a renamed entry of `folder` durable.
pub(super) fn sync(folder: &Path) -> Result<(), DpError> {
    if cfg!(unix) {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| DpError::io(folder, error))?;
    }
    Ok(())
}
