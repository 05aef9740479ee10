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

/// The part of the header that is not written yet.
const UNWRITTEN: [u8; 8] = [0; 8];

/// Maximum length of the header.
const MAX_HEADER: usize = 64;

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
    let (complete, tail) = split_tail(bytes);
    let end = match tail {
        // A line is written before its release, so the release of an incomplete line did not take
        // place.
        Tail::None | Tail::CutOff => complete,
        Tail::Complete => bytes.len(),
        Tail::Damaged => return Err(damaged("the end of its last line is not what was written")),
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged("not a text"))?;
    let mut lines = text.lines();
    let header = lines.next().and_then(checked).ok_or_else(|| damaged("no header"))?;
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

/// Returns whether a log has no release, so that nothing is lost if it is removed.
pub(super) fn is_unused(bytes: &[u8]) -> bool {
    // The header, which is written last, does not exist yet. A single flipped bit cannot create a
    // row of zeros.
    if bytes.windows(UNWRITTEN.len()).take(MAX_HEADER).any(|part| part == UNWRITTEN) {
        return true;
    }
    let (complete, tail) = split_tail(bytes);
    let lines = bytes[..complete].iter().filter(|&&byte| byte == b'\n').count();
    match lines {
        0 => tail != Tail::Damaged,
        1 => {
            let header = std::str::from_utf8(&bytes[..complete - 1]).ok().and_then(checked);
            let is_header = header.is_some_and(|json| serde_json::from_str::<Header>(json).is_ok());
            is_header && matches!(tail, Tail::None | Tail::CutOff)
        }
        _ => false,
    }
}
