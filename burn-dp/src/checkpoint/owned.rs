//! Identifies the checkpoint folders of this crate by their names and a marker inside.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::fail_point::{Operation, operation};
use super::folder::{remove, rename, sync_parent, write};
use super::saved_run::{AVERAGE, MODEL, NOISE, OPTIMIZER, PRIVACY, SCHEDULER, SPARSIFIER};
use crate::DpError;

const PREFIX: &str = "checkpoint-";
const PARTIAL: &str = "partial-checkpoint-";
/// Suffix of the name of a complete checkpoint that replaces another one of the same step. Sorted
/// by name, it is the newer one.
const REPLACEMENT: &str = "-new";
/// The file in each folder of this crate that identifies its run.
const MARKER: &str = "burn-dp-run";
/// The files of a checkpoint. The marker is removed last.
const FILES: [&str; 8] = [PRIVACY, MODEL, OPTIMIZER, SCHEDULER, SPARSIFIER, AVERAGE, NOISE, MARKER];

/// The kind of checkpoint that a folder name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A complete checkpoint.
    Complete,
    /// A checkpoint that a killed process did not finish writing or removing.
    Partial,
}

/// Returns the name of the checkpoint after `step` steps.
pub(super) fn name(step: u64) -> String {
    format!("{PREFIX}{step:020}")
}

/// Returns the name of a replacement until the checkpoint that it replaces is removed.
pub(super) fn replacement(step: u64) -> String {
    format!("{PREFIX}{step:020}{REPLACEMENT}")
}

/// Returns the prefix of the name of an incomplete checkpoint.
pub(super) fn partial(step: u64) -> String {
    format!("{PARTIAL}{step:020}-")
}

/// Returns the kind that a name stands for, if it can belong to this crate.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let (kind, rest) = match name.strip_prefix(PARTIAL) {
        Some(rest) => (Kind::Partial, rest),
        None => (Kind::Complete, name.strip_prefix(PREFIX)?),
    };
    let (step, rest) = rest.split_at_checked(20)?;
    let fits = match kind {
        Kind::Complete => rest.is_empty() || rest == REPLACEMENT,
        Kind::Partial => rest.starts_with('-'),
    };
    (fits && step.bytes().all(|byte| byte.is_ascii_digit())).then_some(kind)
}

/// Returns the run that a folder belongs to; `None` if this crate did not create it.
pub(super) fn run(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join(MARKER)).ok()?;
    u64::from_str_radix(text.trim_end(), 16).ok()
}

/// Marks a folder as belonging to a run.
pub(super) fn mark(folder: &Path, run: u64) -> Result<(), DpError> {
    write(&folder.join(MARKER), format!("{run:016x}\n").as_bytes())
}

/// Returns the folders of this crate in `folder`, sorted by name: in the order of their steps.
pub(super) fn list(folder: &Path) -> Result<Vec<(PathBuf, Kind)>, DpError> {
    let failed = |error| DpError::io(folder, error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let kind = path.file_name().and_then(|name| name.to_str()).and_then(kind);
        if let Some(kind) = kind
            && is_owned(&path, kind)
        {
            found.push((path, kind));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether this crate created a folder with a matching name: it has the marker, or the
/// marker was not written yet.
fn is_owned(path: &Path, kind: Kind) -> bool {
    let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    path.join(MARKER).exists() || (kind == Kind::Partial && is_empty())
}

/// Removes a folder of this crate. Files that this crate did not create are kept.
pub(super) fn discard(path: &Path) -> Result<(), DpError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = match kind(&name) {
        // First renamed, so that an interrupted removal leaves no incomplete checkpoint behind.
        Some(Kind::Complete) => {
            let step = name.trim_start_matches(PREFIX).trim_end_matches(REPLACEMENT);
            let mut names = (0_u32..).map(|number| format!("{PARTIAL}{step}-{number}"));
            let free = names.find(|name| !path.with_file_name(name).exists());
            let free = path.with_file_name(free.unwrap_or_default());
            rename(path, &free)?;
            free
        }
        _ => path.to_path_buf(),
    };
    for file in FILES {
        remove(&partial.join(file))?;
    }
    operation(Operation::Remove)
        .and_then(|()| fs::remove_dir(&partial))
        .map_err(|error| DpError::io(&partial, error))?;
    sync_parent(&partial)
}

/// Removes the folders of this crate that are outdated. Those that cannot be removed stay.
pub(super) fn discard_where(folder: &Path, outdated: impl Fn(&Path, Kind) -> bool) {
    for (path, kind) in list(folder).unwrap_or_default() {
        if outdated(&path, kind)
            && let Err(error) = discard(&path)
        {
            log::warn!("an old checkpoint could not be removed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_of_this_crate() {
        for (name, expected) in [
            (name(7), Some(Kind::Complete)),
            (replacement(7), Some(Kind::Complete)),
            (format!("{}x1", partial(7)), Some(Kind::Partial)),
            ("checkpoint-500".into(), None),
            ("checkpoint-best".into(), None),
            ("checkpoint-notes.txt".into(), None),
            ("partial-results".into(), None),
            (format!("{}-old", super::name(7)), None),
            (format!("{}0", super::name(7)), None),
            ("checkpoint-+0000000000000000007".into(), None),
        ] {
            assert_eq!(kind(&name), expected, "{name}");
        }
    }
}
