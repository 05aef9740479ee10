//! Lines of JSON with a checksum: of a log, of a file with a key, and at the beginning of a record.
//!
//! No record of Burn, for two reasons. A log grows by one line for each release, and a process that
//! ends while it writes cuts off the last line only. A key must be in no buffer that is not erased.

use serde::Serialize;
use zeroize::Zeroizing;

use crate::DpError;

/// Returns one line: a checksum and the content that it protects.
pub(super) fn line(value: &impl Serialize) -> Result<String, DpError> {
    let json = serde_json::to_string(value).map_err(|error| DpError::encoding("a line", error))?;
    let json = Zeroizing::new(json);
    Ok(format!("{:08x} {}\n", crc32fast::hash(json.as_bytes()), *json))
}

/// Returns the content of a line whose checksum is correct.
pub(super) fn checked(line: &str) -> Option<&str> {
    let (sum, json) = line.split_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == crc32fast::hash(json.as_bytes())).then_some(json)
}

/// The content after the last line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    None,
    /// The beginning of a line that was not completely written.
    CutOff,
    /// A line without its line break. It counts, because one release too few would be worse than
    /// one too many.
    Complete,
    /// A complete line with a byte that changed after it was written.
    Damaged,
}

/// Returns the length of the complete lines, and the content after them.
pub(super) fn split_tail(bytes: &[u8]) -> (usize, Tail) {
    let complete = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let tail = &bytes[complete..];
    let Some((_, without_last)) = tail.split_last() else { return (complete, Tail::None) };
    let [tail, without_last] = [tail, without_last].map(|bytes| std::str::from_utf8(bytes).ok());
    let is_whole = |line: &str| {
        line.split_once(' ')
            .is_some_and(|(_, json)| serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok())
    };
    let kind = if tail.is_some_and(|line| checked(line).is_some()) {
        Tail::Complete
    } else if [tail, without_last].into_iter().flatten().any(is_whole) {
        Tail::Damaged
    } else {
        Tail::CutOff
    };
    (complete, kind)
}
