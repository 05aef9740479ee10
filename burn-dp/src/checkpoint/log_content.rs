//! The content of a log of releases: a header, and a line for each release.

use std::path::Path;

use burn_dp_accountant::DpEvent;
use serde::{Deserialize, Serialize};

use super::log_lines::{self, Tail, checked, split_tail};
use crate::DpError;
use crate::optim::engine::damaged;
use crate::optim::releases::{Mark, Releases};

/// Version of the format. Other versions are refused.
pub(super) const FORMAT: u32 = 1;

/// The shape of a checksum, see [`fits_byte`].
pub(super) const CHECKSUM: &str = "########";

/// The shape of the beginning of the line of the first release.
const FIRST_RELEASE: &str = "######## {\"step\":0,\"mark\":[";

/// Maximum number of digits of a run.
pub(super) const RUN_DIGITS: usize = 20;

/// Minimum number of zeros in a header that is not complete. A single flipped bit cannot create a
/// row of zeros.
const UNWRITTEN: usize = 8;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) format: u32,
    pub(super) run: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) step: u64,
    pub(super) mark: Mark,
    /// `None` if it continues the event of the previous line: the same event, or the next step with
    /// correlated noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<DpEvent>,
}

/// Returns the written form of the log of these releases.
pub(super) fn written(releases: &Releases) -> Result<String, DpError> {
    let mut text = log_lines::line(&Header { format: FORMAT, run: releases.run() })?;
    let mut steps = (0..).zip(releases.marks());
    for (event, count) in releases.events().all() {
        let mut event = Some(event);
        for (step, &mark) in steps.by_ref().take(usize::try_from(count).unwrap_or(usize::MAX)) {
            text += &log_lines::line(&Line { step, mark, event: event.take() })?;
        }
    }
    Ok(text)
}

/// Returns the releases in `bytes`, and the end of the last line.
pub(super) fn parse(
    path: &Path,
    bytes: &[u8],
    run: Option<u64>,
) -> Result<(Releases, usize), DpError> {
    let damaged = |reason: &str| damaged(path, reason);
    let not_a_log =
        |reason: &str| damaged(&format!("{reason}: if it is not a log of releases, move it away"));
    let (complete, tail) = split_tail(bytes);
    let end = match tail {
        // A line is written before its release, so the release of an incomplete line did not take
        // place.
        Tail::None | Tail::CutOff => complete,
        Tail::Complete => bytes.len(),
        Tail::Damaged => return Err(damaged("the end of its last line is not what was written")),
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| not_a_log("not a text"))?;
    let mut lines = text.lines();
    let header = lines.next().and_then(checked).ok_or_else(|| not_a_log("no header"))?;
    let header: Header = serde_json::from_str(header)
        .map_err(|error| damaged(&format!("the header is unknown: {error}")))?;
    if header.format != FORMAT {
        return Err(DpError::saved_state(format!(
            "{} has format {}, this version reads format {FORMAT}; resume with the version of \
             burn-dp that wrote it",
            path.display(),
            header.format
        )));
    }
    if run.is_some_and(|run| run != header.run) {
        return Err(DpError::saved_state(format!(
            "{} belongs to another run; give every run its own folder",
            path.display()
        )));
    }
    let mut releases = Releases::new(header.run);
    for (step, text) in (0..).zip(lines) {
        let unreadable = || damaged(&format!("line {} is not what was written", step + 2));
        let line: Line = checked(text)
            .and_then(|text| serde_json::from_str(text).ok())
            .ok_or_else(unreadable)?;
        let event = line.event.or_else(|| releases.events().following());
        match &event {
            Some(event) if line.step == step => releases.push(line.mark, event),
            _ => return Err(unreadable()),
        }
    }
    Ok((releases, end))
}

/// Returns whether a log has no release, so that nothing is lost if it is replaced. The file of
/// another program is not an unused log.
pub(super) fn is_unused(bytes: &[u8]) -> bool {
    if is_without_header(bytes) {
        return true;
    }
    let (complete, tail) = split_tail(bytes);
    let lines = bytes[..complete].iter().filter(|&&byte| byte == b'\n').count();
    if lines != 1 {
        return false;
    }
    let header = std::str::from_utf8(&bytes[..complete - 1]).ok().and_then(checked);
    let is_header = header.is_some_and(|json| serde_json::from_str::<Header>(json).is_ok());
    is_header && matches!(tail, Tail::None | Tail::CutOff)
}

/// Returns whether these bytes are a log whose header is not complete. The header is written last:
/// until then, zeros are in its place if there are lines of releases.
pub(super) fn is_without_header(bytes: &[u8]) -> bool {
    // What remains of a file where the machine lost its power.
    if bytes.iter().all(|&byte| byte == 0) {
        return true;
    }
    (1..=RUN_DIGITS).any(|digits| {
        let run = "*".repeat(digits);
        let header = format!("{CHECKSUM} {{\"format\":{FORMAT},\"run\":{run}}}\n");
        let (begun, lines) = bytes.split_at(bytes.len().min(header.len()));
        let end = begun.iter().position(|&byte| byte == 0).unwrap_or(begun.len());
        let (written, zeros) = begun.split_at(end);
        if !fits(written, &header) || zeros.iter().any(|&byte| byte != 0) {
            return false;
        }
        if !lines.is_empty() {
            let is_release = lines.len() > CHECKSUM.len() + 1 && fits(lines, FIRST_RELEASE);
            return zeros.len() >= UNWRITTEN && is_release;
        }
        end < header.len() && (!zeros.is_empty() || split_tail(bytes).1 != Tail::Damaged)
    })
}

/// Returns whether bytes have a shape, as far as both reach.
fn fits(bytes: &[u8], shape: &str) -> bool {
    bytes.iter().zip(shape.as_bytes()).all(|(&byte, &shape)| fits_byte(byte, shape))
}

/// Returns whether a byte has a shape: `#` is a hexadecimal digit, `*` is a decimal digit, and any
/// other character is itself.
pub(super) fn fits_byte(byte: u8, shape: u8) -> bool {
    match shape {
        b'#' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        b'*' => byte.is_ascii_digit(),
        _ => byte == shape,
    }
}
