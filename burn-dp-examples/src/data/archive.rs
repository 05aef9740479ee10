//! Files from a tar archive, plain or compressed with gzip.

use std::io::{self, Read};
use std::path::Path;

use super::{DataError, file};

/// Maximum size of a file: more than any file of a data set, and a bound for damaged headers.
const LARGEST: u64 = 1 << 30;

/// Returns the names and contents of the regular files whose name is `wanted`, in the archive's
/// order.
///
/// # Errors
///
/// Returns [`DataError::Damaged`] if the archive ends early or has a damaged header, and
/// [`DataError::Io`] if it cannot be read.
pub(super) fn files(
    path: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(String, Vec<u8>)>, DataError> {
    let damaged = |reason| DataError::Damaged { path: path.into(), reason };
    let unreadable = |error: io::Error| match error.kind() {
        // Errors of the archive format have no `ErrorKind`.
        io::ErrorKind::Other => damaged(format!("not a readable archive ({error})")),
        _ => file::unreadable(path, error),
    };
    let mut archive = tar::Archive::new(file::open(path)?);
    let mut found = Vec::new();
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !wanted(&name) {
            continue;
        }
        let size = entry.size();
        if size > LARGEST {
            return Err(damaged(format!("{name} has {size} bytes, expected at most {LARGEST}")));
        }
        let start = entry.raw_file_position();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(unreadable)?;
        let read = content.len() as u64;
        if read < size {
            return Err(damaged(format!(
                "the archive ends at byte {} inside {name}",
                start + read
            )));
        }
        found.push((name, content));
    }
    // The checksum of the compression follows the last file.
    let rest = io::copy(&mut archive.into_inner(), &mut io::sink());
    rest.map_err(|error| file::unreadable(path, error))?;
    Ok(found)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::path::PathBuf;

    use flate2::{Compression, write::GzEncoder};
    use tempfile::TempDir;

    use super::*;

    const BLOCK: usize = 512;

    fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(content.len() as u64);
        header.set_cksum();
        let mut entry = header.as_bytes().to_vec();
        entry.extend(content);
        entry.resize(entry.len().next_multiple_of(BLOCK), 0);
        entry
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// An archive of regular files, as the readers of data sets find it.
    pub(in crate::data) fn archive(files: &[(&str, Vec<u8>)], compressed: bool) -> Vec<u8> {
        let entries = files.iter().flat_map(|(name, content)| entry(name, b'0', content));
        let bytes: Vec<u8> = entries.chain([0; 2 * BLOCK]).collect();
        if compressed { gzip(&bytes) } else { bytes }
    }

    fn file(content: &[u8]) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive");
        std::fs::write(&path, content).unwrap();
        (folder, path)
    }

    fn error(content: &[u8]) -> String {
        let (_folder, path) = file(content);
        files(&path, |_| true).unwrap_err().to_string()
    }

    fn two() -> [(&'static str, Vec<u8>); 2] {
        [("a/one.txt", vec![1; 700]), ("a/two.txt", vec![2; 512])]
    }

    #[test]
    fn wanted_files_are_read_plain_and_compressed() {
        for compressed in [false, true] {
            let (_folder, path) = file(&archive(&two(), compressed));
            let all = files(&path, |_| true).unwrap();
            assert_eq!(all, two().map(|(name, content)| (name.to_string(), content)));
            let second = files(&path, |name| name.ends_with("two.txt")).unwrap();
            assert_eq!(second, all[1..]);
        }
    }

    #[test]
    fn folders_and_links_are_skipped_and_long_names_are_joined() {
        let long = "long/".repeat(30) + "name";
        let record = format!("164 path={long}\n");
        let gnu = [long.as_bytes(), &[0]].concat();
        let content = [
            entry("folder/", b'5', &[]),
            entry("link", b'2', &[]),
            entry("PaxHeaders/name", b'x', record.as_bytes()),
            entry("short", b'0', &[3]),
            entry("././@LongLink", b'L', &gnu),
            entry("short", b'0', &[4]),
            entry("plain", b'0', &[5]),
        ];
        let (_folder, path) = file(&content.concat());
        let found = files(&path, |_| true).unwrap();
        assert_eq!(found, [(long.clone(), vec![3]), (long, vec![4]), ("plain".into(), vec![5])]);
    }

    #[test]
    fn an_archive_that_ends_early_is_damaged_at_a_byte() {
        let whole = archive(&two(), false);
        let text = error(&whole[..BLOCK + 100]);
        assert!(text.contains("ends at byte 612 inside a/one.txt"), "{text}");
        let text = error(&whole[..3 * BLOCK + 10]);
        assert!(text.contains("not a readable archive (failed to read entire block)"), "{text}");
        let compressed = gzip(&whole);
        assert!(error(&compressed[..compressed.len() - 12]).contains("ends early"));
    }

    #[test]
    fn a_damaged_header_is_recognized() {
        let mut content = archive(&two(), false);
        content[3] ^= 1;
        let text = error(&content);
        assert!(text.contains("archive header checksum mismatch"), "{text}");
        assert!(error(b"<html>not found</html>").contains("not a readable archive"));
    }
}
