//! Files for readers.

use std::path::Path;

/// Calls `read` with the path of a file of these bytes.
pub fn with_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    with_files(&[(name, bytes)], |folder| read(&folder.join(name)))
}

/// Calls `read` with the path of a folder of these files.
pub fn with_files<T>(files: &[(&str, &[u8])], read: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder in it");
        std::fs::write(path, bytes).expect("a file in it");
    }
    read(folder.path())
}
