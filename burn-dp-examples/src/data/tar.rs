//! Files out of a tar archive, plain or compressed with gzip.
//!
//! The data sets come as archives of ordinary files with short names; this reads those, and the long
//! names of GNU and POSIX archives. Links and devices are passed over.
//!
//! # References
//!
//! IEEE Std 1003.1-2017, `pax`, "ustar Interchange Format" and "pax Header Block".

use std::io::Read;
use std::path::Path;

use super::{DataError, file};

const BLOCK: usize = 512;

/// Largest file that is read: more than any of a data set, and a bound for damaged headers.
const LARGEST: u64 = 1 << 30;

/// The names and contents of the ordinary files whose name is `wanted`, in their order.
///
/// # Errors
///
/// When the archive cannot be read, ends early, or has a header that is damaged.
pub(super) fn files(
    path: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(String, Vec<u8>)>, DataError> {
    let mut archive = Archive { path, reader: file::open(path)?, offset: 0 };
    let mut found = Vec::new();
    let mut long_name = None;
    while let Some(header) = archive.header()? {
        let name = match header.kind {
            b'L' | b'x' | b'g' => header.name,
            _ => long_name.take().unwrap_or(header.name),
        };
        match header.kind {
            b'0' | 0 if wanted(&name) => {
                let content = archive.content(header.size, &name)?;
                found.push((name, content));
            }
            b'L' => {
                let content = archive.content(header.size, &name)?;
                long_name = Some(text(&content));
            }
            b'x' => {
                let content = archive.content(header.size, &name)?;
                long_name = path_of(&content);
            }
            _ => archive.skip(header.size, &name)?,
        }
    }
    // What follows the last file is empty, but the checksum of the compression comes after it.
    let rest = std::io::copy(&mut archive.reader, &mut std::io::sink());
    rest.map_err(|error| file::unreadable(path, error))?;
    Ok(found)
}

struct Header {
    name: String,
    size: u64,
    kind: u8,
}

struct Archive<'a> {
    path: &'a Path,
    reader: Box<dyn Read>,
    /// Bytes read so far, after decompression.
    offset: u64,
}

impl Archive<'_> {
    /// The next header, or nothing at the end.
    fn header(&mut self) -> Result<Option<Header>, DataError> {
        let at = self.offset;
        let mut block = [0; BLOCK];
        let read = self.fill(&mut block)?;
        // Two empty blocks end an archive; some writers leave them out.
        if read == 0 || (read == BLOCK && block == [0; BLOCK]) {
            return Ok(None);
        }
        let damaged = |reason: String| {
            let reason = format!("{reason} in the header at byte {at}");
            DataError::Damaged { path: self.path.into(), reason }
        };
        if read < BLOCK {
            return Err(damaged("the archive ends".into()));
        }
        let expected = octal(&block[148..156]).ok_or_else(|| damaged("no checksum".into()))?;
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        if sum != expected {
            return Err(damaged(format!("the checksum is {expected}, the bytes add up to {sum},")));
        }
        let size = octal(&block[124..136]).filter(|&size| size <= LARGEST);
        let size = size.ok_or_else(|| damaged("an impossible size".into()))?;
        let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
        let ustar = block[257..262] == *b"ustar" && !prefix.is_empty();
        let name = if ustar { format!("{prefix}/{name}") } else { name };
        Ok(Some(Header { name, size, kind: block[156] }))
    }

    fn content(&mut self, size: u64, name: &str) -> Result<Vec<u8>, DataError> {
        let mut content = Vec::new();
        let padded = size.next_multiple_of(BLOCK as u64);
        let read = self.reader.by_ref().take(padded).read_to_end(&mut content);
        read.map_err(|error| file::unreadable(self.path, error))?;
        self.complete(content.len() as u64, padded, name)?;
        content.truncate(size as usize);
        Ok(content)
    }

    fn skip(&mut self, size: u64, name: &str) -> Result<(), DataError> {
        let padded = size.next_multiple_of(BLOCK as u64);
        let read = std::io::copy(&mut self.reader.by_ref().take(padded), &mut std::io::sink());
        let read = read.map_err(|error| file::unreadable(self.path, error))?;
        self.complete(read, padded, name)
    }

    fn complete(&mut self, read: u64, expected: u64, name: &str) -> Result<(), DataError> {
        self.offset += read;
        if read == expected {
            return Ok(());
        }
        let reason = format!("the archive ends at byte {} inside {name}", self.offset);
        Err(DataError::Damaged { path: self.path.into(), reason })
    }

    /// Reads until the buffer is full or the archive ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, DataError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(file::unreadable(self.path, error)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = text(field);
    u64::from_str_radix(digits.trim(), 8).ok()
}

/// The `path` among the records `LENGTH KEY=VALUE\n` of a POSIX header.
fn path_of(records: &[u8]) -> Option<String> {
    let records = String::from_utf8_lossy(records);
    records.lines().find_map(|line| line.split_once(" path=").map(|(_, path)| path.to_string()))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::path::PathBuf;

    use flate2::{Compression, write::GzEncoder};
    use tempfile::TempDir;

    use super::*;

    fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut block = [0; BLOCK];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[148..156].fill(b' ');
        block[156] = kind;
        block[257..263].copy_from_slice(b"ustar\0");
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut entry = block.to_vec();
        entry.extend(content);
        entry.resize(entry.len().next_multiple_of(BLOCK), 0);
        entry
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// An archive of ordinary files, as the readers of data sets find it.
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
    fn wanted_files_come_out_plain_and_compressed() {
        for compressed in [false, true] {
            let (_folder, path) = file(&archive(&two(), compressed));
            let all = files(&path, |_| true).unwrap();
            assert_eq!(all, two().map(|(name, content)| (name.to_string(), content)));
            let second = files(&path, |name| name.ends_with("two.txt")).unwrap();
            assert_eq!(second, all[1..]);
        }
    }

    #[test]
    fn folders_and_links_are_passed_over_and_long_names_are_joined() {
        let long = "long/".repeat(30) + "name";
        let record = format!("171 path={long}\n");
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
        assert!(text.contains("ends in the header at byte 1536"), "{text}");
        let compressed = gzip(&whole);
        assert!(error(&compressed[..compressed.len() - 12]).contains("ends early"));
    }

    #[test]
    fn a_damaged_header_is_recognised() {
        let mut content = archive(&two(), false);
        content[3] ^= 1;
        let text = error(&content);
        assert!(text.contains("the checksum is") && text.contains("at byte 0"), "{text}");
        assert!(error(b"<html>not found</html>").contains("ends in the header at byte 0"));
    }
}
