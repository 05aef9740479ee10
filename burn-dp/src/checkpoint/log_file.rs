//! The log of releases on disk, which no checkpoint takes back.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use burn_dp_accountant::DpEvent;
use serde::{Deserialize, Serialize};

use super::log_lines::{self, Tail, checked, split_tail};
use crate::DpError;
use crate::optim::engine::damaged;
use crate::optim::releases::{Mark, ReleaseSink, Releases};

/// The name of the log in a folder of checkpoints.
pub(super) const RELEASES: &str = "releases.log";

/// Version of the format. Other versions are refused.
const FORMAT: u32 = 1;

/// The file of a run to which every release is appended before its noise is drawn.
///
/// # Privacy
///
/// A release is on disk before anything of it leaves the process, so returning to a checkpoint
/// gives no budget back, whatever happened to the process. The file is locked while a run uses it.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: u32,
    run: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    step: u64,
    mark: Mark,
    /// `None` if it equals the event of the line before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<DpEvent>,
}

/// What to do with a log of another run that has no release, which a killed process left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusedLog {
    /// Replace it: there is no checkpoint that belongs to it.
    Replace,
    /// Refuse it like any other.
    Refuse,
}

impl ReleaseSink for LogFile {
    fn append(&mut self, step: u64, mark: Mark, event: Option<&DpEvent>) -> Result<(), DpError> {
        let line = log_lines::line(&Line { step, mark, event: event.cloned() })?;
        append(&self.path, &mut self.file, &line)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl LogFile {
    /// Stores the releases of a run in the file `path` from here on, with those that were made so
    /// far. Does nothing if they are stored there already.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the run has another log, because the one that a run is
    /// not resumed with would fall behind and give budget back. Returns [`DpError::SavedState`] if
    /// the file belongs to another run, is used by another process, or has other releases.
    pub(crate) fn attach(
        releases: &mut Releases,
        path: &Path,
        unused: UnusedLog,
    ) -> Result<(), DpError> {
        if let Some(attached) = releases.path() {
            return match is_same_file(&attached, path) {
                true => Ok(()),
                false => Err(DpError::state(format!(
                    "the releases of the run are in {}, and a second log in {} would fall behind \
                     as soon as the run is resumed from the other; save where the log is",
                    attached.display(),
                    path.display()
                ))),
            };
        }
        let failed = |error| DpError::io(path, error);
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(failed)?;
        lock(path, &file)?;
        let bytes = fs::read(path).map_err(failed)?;
        // A file without a byte is one that a killed process had just created.
        let is_new = bytes.is_empty() || (unused == UnusedLog::Replace && is_unused(&bytes));
        if is_new {
            file.set_len(0).map_err(failed)?;
            append(path, &mut file, &written(releases)?)?;
        } else {
            let found = Self::take(path, &mut file, Some(releases.run()))?;
            if written(&found)? != written(releases)? {
                return Err(DpError::saved_state(format!(
                    "{} has {} releases and the run {}; resume from the newest checkpoint there, \
                     or give the run its own folder",
                    path.display(),
                    found.len(),
                    releases.len()
                )));
            }
        }
        releases.attach(Self { path: path.to_path_buf(), file });
        Ok(())
    }

    /// Returns an error if there is a log with releases: no checkpoint belongs to it, and a new run
    /// in its place would not account for them.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if there is such a log, or one that is damaged.
    pub(crate) fn refuse_without_checkpoint(path: &Path) -> Result<(), DpError> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            read => read.map_err(|error| DpError::io(path, error))?,
        };
        if is_unused(&bytes) {
            return Ok(());
        }
        let (found, _) = parse(path, &bytes, None)?;
        Err(DpError::saved_state(format!(
            "{} has {} releases of a run, and there is no checkpoint to resume it from; restore \
             the newest checkpoint of that run from a backup, or give the new run its own folder",
            path.display(),
            found.len()
        )))
    }

    /// Returns the releases of the run `run`, which are stored in this file from here on.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file is missing, damaged, of another version, of
    /// another run, or in use.
    pub(crate) fn read(path: &Path, run: u64) -> Result<Releases, DpError> {
        if !path.exists() {
            return Err(DpError::saved_state(format!(
                "{} is missing: without it, the releases after the checkpoint are unknown, and \
                 budget would be spent twice; restore the file from a backup, or start a new run \
                 with its own budget",
                path.display()
            )));
        }
        let opened = OpenOptions::new().append(true).open(path);
        let mut file = opened.map_err(|error| DpError::io(path, error))?;
        lock(path, &file)?;
        let mut releases = Self::take(path, &mut file, Some(run))?;
        releases.attach(Self { path: path.to_path_buf(), file });
        Ok(releases)
    }

    /// Reads the log in `file`, which is locked, and removes what follows its last complete line.
    fn take(path: &Path, file: &mut File, run: Option<u64>) -> Result<Releases, DpError> {
        let failed = |error| DpError::io(path, error);
        let bytes = fs::read(path).map_err(failed)?;
        let (releases, end) = parse(path, &bytes, run)?;
        if end < bytes.len() {
            file.set_len(end as u64).map_err(failed)?;
        }
        if !bytes[..end].ends_with(b"\n") {
            append(path, file, "\n")?;
        }
        Ok(releases)
    }
}

/// Returns the log of these releases as it is written.
fn written(releases: &Releases) -> Result<String, DpError> {
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

/// Returns the releases that are written in `bytes`, and where the last line ends.
fn parse(path: &Path, bytes: &[u8], run: Option<u64>) -> Result<(Releases, usize), DpError> {
    let damaged = |reason: &str| damaged(path, reason);
    let (complete, tail) = split_tail(bytes);
    let end = match tail {
        // A line is written before its release is made: the release of an incomplete line was not
        // made.
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
    let mut last = None;
    for (step, text) in (0..).zip(lines) {
        let unreadable = || damaged(&format!("line {} is not what was written", step + 2));
        let line: Line = checked(text)
            .and_then(|text| serde_json::from_str(text).ok())
            .ok_or_else(unreadable)?;
        last = line.event.or(last);
        match &last {
            Some(event) if line.step == step => releases.push(line.mark, event),
            _ => return Err(unreadable()),
        }
    }
    Ok((releases, end))
}

/// Returns whether a log has no release, so that nothing is lost with it.
fn is_unused(bytes: &[u8]) -> bool {
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

fn is_same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    a == b || real(a) == real(b)
}

/// Appends to the disk, not only to the cache of the operating system: the noise that follows must
/// not leave the process before the line is there.
fn append(path: &Path, file: &mut File, text: &str) -> Result<(), DpError> {
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_data())
        .map_err(|error| DpError::io(path, error))
}

/// Locks the file: two processes that continue one run would release from the same draws.
fn lock(path: &Path, file: &File) -> Result<(), DpError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(DpError::saved_state(format!(
            "{} is in use by another process or optimizer of this run; wait until it has ended",
            path.display()
        ))),
        // A file system without locks.
        Err(fs::TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
            Ok(())
        }
        Err(fs::TryLockError::Error(error)) => Err(DpError::io(path, error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn event() -> DpEvent {
        DpEvent::dp_sgd_step(0.01, 1.0)
    }

    fn mark(number: u8) -> Mark {
        Mark([number; 16])
    }

    fn log(folder: &Path, releases: u8) -> PathBuf {
        let path = folder.join("releases.log");
        let mut log = Releases::new(7);
        log.record(0, &event(), mark(0)).unwrap();
        LogFile::attach(&mut log, &path, UnusedLog::Refuse).unwrap();
        for step in 1..releases {
            log.record(step.into(), &event(), mark(step)).unwrap();
        }
        path
    }

    /// Why the run `run` cannot store its releases in the file.
    fn refused(run: u64, path: &Path, unused: UnusedLog) -> String {
        LogFile::attach(&mut Releases::new(run), path, unused).unwrap_err().to_string()
    }

    #[test]
    fn releases_before_and_after_the_first_checkpoint_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 5);
        let found = LogFile::read(&path, 7).unwrap();
        assert_eq!(found.len(), 5);
        assert_eq!(found.marks(), (0..5).map(mark).collect::<Vec<_>>());
        assert_eq!(found.events().all(), [(event(), 5)]);
    }

    #[test]
    fn a_cut_line_was_not_released_and_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 4);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let mut found = LogFile::read(&path, 7).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.record(3, &event(), mark(3)).unwrap());
        drop(found);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    // Sharp edge: one bit of the disk must not remove a release.
    #[test]
    fn no_flipped_bit_removes_a_release() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 3);
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &damaged).unwrap();
            // Digits of the check sum are the same in capitals.
            match LogFile::read(&path, 7) {
                Ok(found) => assert_eq!(found.len(), 3, "bit {bit}"),
                Err(error) => assert!(error.to_string().contains("releases.log"), "{error}"),
            }
            if bit / 8 == bytes.len() - 1 {
                let error = LogFile::read(&path, 7).unwrap_err().to_string();
                assert!(error.contains("the end of its last line"), "{error}");
            }
        }
    }

    #[test]
    fn a_last_line_without_its_line_break_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 3);
        let bytes = fs::read(&path).unwrap();
        let last = bytes[..bytes.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
        for cut in last..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let releases = if cut == bytes.len() - 1 { 3 } else { 2 };
            assert_eq!(LogFile::read(&path, 7).unwrap().len(), releases, "{cut}");
            let end = if releases == 3 { bytes.len() } else { last };
            assert_eq!(fs::read(&path).unwrap(), bytes[..end]);
        }
    }

    #[test]
    fn a_log_without_a_release_is_replaced_only_where_a_run_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("releases.log");
        let header = log_lines::line(&Header { format: FORMAT, run: 7 }).unwrap();
        let cut = format!("{header}0123abcd {{\"step\":0,");
        for left in [header.as_str(), &cut, &header[..5], &header[..header.len() - 1], ""] {
            fs::write(&path, left).unwrap();
            LogFile::refuse_without_checkpoint(&path).unwrap();
            if !left.is_empty() {
                let error = refused(8, &path, UnusedLog::Refuse);
                assert!(error.contains("another run") || error.contains("damaged"), "{error}");
            }
            fs::write(&path, left).unwrap();
            let mut run = Releases::new(8);
            run.record(0, &event(), mark(3)).unwrap();
            LogFile::attach(&mut run, &path, UnusedLog::Replace).unwrap();
            drop(run);
            assert_eq!(LogFile::read(&path, 8).unwrap().len(), 1);
        }
        // One that a run has just begun to write is its own.
        fs::remove_file(&path).unwrap();
        let mut first = Releases::new(7);
        LogFile::attach(&mut first, &path, UnusedLog::Replace).unwrap();
        let error = refused(8, &path, UnusedLog::Replace);
        assert!(error.contains("is in use"), "{error}");
    }

    #[test]
    fn a_log_with_a_release_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 1);
        let text = fs::read_to_string(&path).unwrap();
        let unbroken = text.trim_end().to_string();
        let merged = text.replacen('\n', "\u{b}", 1);
        let damaged = text.replace("\"step\":0", "\"step\":1");
        for (left, reason) in [
            (&text, "has 1 releases"),
            (&unbroken, "has 1 releases"),
            (&merged, "damaged"),
            (&damaged, "damaged"),
        ] {
            fs::write(&path, left).unwrap();
            let error = LogFile::refuse_without_checkpoint(&path).unwrap_err().to_string();
            assert!(error.contains("releases.log") && error.contains(reason), "{error}");
            assert!(error.contains("backup") && error.contains("new run"), "{error}");
            refused(8, &path, UnusedLog::Replace);
            assert_eq!(&fs::read_to_string(&path).unwrap(), left);
        }
    }

    #[test]
    fn damaged_missing_and_foreign_logs_are_refused_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 4);
        let text = fs::read_to_string(&path).unwrap();
        let refused = |damaged: &str, run| {
            fs::write(&path, damaged).unwrap();
            LogFile::read(&path, run).unwrap_err().to_string()
        };
        let error = refused(&text.replace("\"step\":2", "\"step\":3"), 7);
        assert!(error.contains("line 4 is not what was written"), "{error}");
        let line: String = text.lines().filter(|line| !line.contains("\"step\":2")).collect();
        assert!(refused(&line, 7).contains("damaged"));
        let removed: String = text
            .lines()
            .filter(|line| !line.contains("\"step\":2"))
            .map(|line| format!("{line}\n"))
            .collect();
        let error = refused(&removed, 7);
        assert!(error.contains("line 4"), "{error}");
        assert!(refused("", 7).contains("no header"));
        assert!(refused(&text, 8).contains("another run"));
        let header = log_lines::line(&Header { format: 9, run: 7 }).unwrap();
        assert!(refused(&header, 7).contains("format 9"));
        fs::remove_file(&path).unwrap();
        let error = LogFile::read(&path, 7).unwrap_err().to_string();
        assert!(error.contains("is missing") && error.contains("backup"), "{error}");
    }

    #[test]
    fn a_run_has_one_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 2);
        let mut run = LogFile::read(&path, 7).unwrap();
        let same = folder.path().join(".").join("releases.log");
        LogFile::attach(&mut run, &same, UnusedLog::Refuse).unwrap();
        let other = folder.path().join("other.log");
        let error = LogFile::attach(&mut run, &other, UnusedLog::Refuse).unwrap_err().to_string();
        assert!(
            error.contains("fall behind") && error.contains("save where the log is"),
            "{error}"
        );
        assert!(!folder.path().join("other.log").exists());
    }

    #[test]
    fn a_log_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 2);
        let first = LogFile::read(&path, 7).unwrap();
        let error = LogFile::read(&path, 7).unwrap_err().to_string();
        assert!(error.contains("is in use"), "{error}");
        drop(first);
        assert!(LogFile::read(&path, 7).is_ok());
    }
}
