//! The list of releases that no checkpoint takes back.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use burn_dp_accountant::{DpEvent, PrivacyLedger};
use serde::{Deserialize, Serialize};

use crate::DpError;

/// Version of the format. Unknown versions are refused.
const FORMAT: u32 = 1;

/// Tells two releases of one step apart without saying anything of either; see
/// [`NoiseStep::content_mark`](crate::random::NoiseStep::content_mark).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark(pub(crate) [u8; 16]);

/// Every release of a run, in order: in memory, and on disk as soon as there is a checkpoint that a run
/// could go back to.
///
/// # Privacy
///
/// A line is on disk before the noise of its release is drawn, so going back to a checkpoint gives no
/// budget back, whatever became of the process. A step that is made again is allowed only if it is the
/// release that was made before, bit for bit: then nothing new is released.
pub(crate) struct ReleaseLog {
    /// Marks the key of the run.
    run: u64,
    marks: Vec<Mark>,
    /// What was released, and how often in a row.
    events: Vec<(DpEvent, u64)>,
    file: Option<(PathBuf, File)>,
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
    /// Left out where it is that of the line before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<DpEvent>,
}

impl ReleaseLog {
    pub(crate) fn new(run: u64) -> Self {
        Self { run, marks: Vec::new(), events: Vec::new(), file: None }
    }

    /// Number of steps that were released.
    pub(crate) fn len(&self) -> u64 {
        self.marks.len() as u64
    }

    /// Enters the release of `step`. Returns `false` for one that was made before.
    ///
    /// # Errors
    ///
    /// Refuses a step that was released before with other content, and a step that leaves others out.
    pub(crate) fn record(
        &mut self,
        step: u64,
        event: &DpEvent,
        mark: Mark,
    ) -> Result<bool, DpError> {
        if let Some(before) = usize::try_from(step).ok().and_then(|step| self.marks.get(step)) {
            return match *before == mark {
                true => Ok(false),
                false => Err(DpError::state(format!(
                    "step {step} was released before the run was resumed, and it is not the same \
                     when it is made again: the data, the program or the order of a sum is another, \
                     and a second release from the same draw would cost more than the ledger says; \
                     resume as before, or with `Checkpoint::skip_lost_steps`, which goes on after \
                     the last release"
                ))),
            };
        }
        if step != self.len() {
            return Err(DpError::state(format!(
                "step {step} cannot follow {} releases; make the steps in order",
                self.len()
            )));
        }
        let is_new = self.events.last().is_none_or(|(last, _)| last != event);
        if let Some((path, file)) = &mut self.file {
            let text = line(&Line { step, mark, event: is_new.then(|| event.clone()) })?;
            append(path, file, &text)?;
        }
        self.push(mark, is_new.then(|| event.clone()));
        Ok(true)
    }

    /// Without an event, one more of the last.
    fn push(&mut self, mark: Mark, event: Option<DpEvent>) {
        self.marks.push(mark);
        match (event, self.events.last_mut()) {
            (Some(event), _) => self.events.push((event, 1)),
            (None, Some((_, count))) => *count += 1,
            (None, None) => {}
        }
    }

    /// Where the log is, once it is on disk.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|(path, _)| path.clone())
    }

    /// Writes what was released so far to `path` and goes on there. Does nothing if it is there already.
    ///
    /// # Arguments
    ///
    /// - `begins`: whether nothing was saved beside the log, so that one without a release is of no use to
    ///   anybody: that of a run that was killed as it began is replaced
    ///
    /// # Errors
    ///
    /// Refuses a second file for one run: whichever the run is not resumed with would fall behind, and
    /// give budget back. Refuses a file of another run, one that another process writes to, and one that
    /// knows of other releases.
    pub(crate) fn attach(&mut self, path: &Path, begins: bool) -> Result<(), DpError> {
        if let Some((attached, _)) = &self.file {
            return match is_same_file(attached, path) {
                true => Ok(()),
                false => Err(DpError::state(format!(
                    "the releases of the run are in {}, and in {} they would fall behind as soon as \
                     the run goes on from the other; save where the log is",
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
        let unused = bytes.is_empty() || (begins && is_unused(&bytes));
        if !unused {
            let found = Self::take(path, &mut file, Some(self.run))?;
            if found.marks != self.marks || found.events != self.events {
                return Err(DpError::state(format!(
                    "{} knows of {} releases and the run of {}; resume from the newest checkpoint \
                     there, or give the run a folder of its own",
                    path.display(),
                    found.len(),
                    self.len()
                )));
            }
            self.file = Some((path.to_path_buf(), file));
            return Ok(());
        }
        file.set_len(0).map_err(failed)?;
        let mut text = line(&Header { format: FORMAT, run: self.run })?;
        let mut begin = 0;
        let mut first = BTreeMap::new();
        for (event, count) in &self.events {
            first.insert(begin, event.clone());
            begin += count;
        }
        for (step, &mark) in (0..).zip(&self.marks) {
            text += &line(&Line { step, mark, event: first.remove(&step) })?;
        }
        append(path, &mut file, &text)?;
        self.file = Some((path.to_path_buf(), file));
        Ok(())
    }

    /// Refuses a log with releases that nothing was saved beside: a new run would not know of them.
    ///
    /// # Errors
    ///
    /// When there is such a log, or one that is damaged.
    pub(crate) fn refuse_without_checkpoint(path: &Path) -> Result<(), DpError> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            read => read.map_err(|error| DpError::io(path, error))?,
        };
        if is_unused(&bytes) {
            return Ok(());
        }
        let (found, _) = Self::parse(path, &bytes, None)?;
        Err(DpError::state(format!(
            "{} knows of {} releases of a run, and no checkpoint is beside it to go on from; restore the \
             newest checkpoint of that run from a backup, or give the new run a folder of its own",
            path.display(),
            found.len()
        )))
    }

    /// The log of the run that the mark `run` belongs to.
    ///
    /// # Errors
    ///
    /// When the file is missing, damaged, of another version, of another run, or in use.
    pub(crate) fn read(path: &Path, run: u64) -> Result<Self, DpError> {
        if !path.exists() {
            return Err(DpError::state(format!(
                "{} is missing: without it nobody knows what was released after the checkpoint, and \
                 budget would be spent twice; restore the file from a backup, or start a new run \
                 with a budget of its own",
                path.display()
            )));
        }
        let (mut log, file) = Self::open(path, Some(run))?;
        log.file = Some((path.to_path_buf(), file));
        Ok(log)
    }

    fn open(path: &Path, run: Option<u64>) -> Result<(Self, File), DpError> {
        let opened = OpenOptions::new().append(true).open(path);
        let mut file = opened.map_err(|error| DpError::io(path, error))?;
        lock(path, &file)?;
        Ok((Self::take(path, &mut file, run)?, file))
    }

    /// Reads the log in `file`, which is locked, and leaves nothing after its last line.
    fn take(path: &Path, file: &mut File, run: Option<u64>) -> Result<Self, DpError> {
        let failed = |error| DpError::io(path, error);
        let bytes = fs::read(path).map_err(failed)?;
        let (log, end) = Self::parse(path, &bytes, run)?;
        if end < bytes.len() {
            file.set_len(end as u64).map_err(failed)?;
        }
        if !bytes[..end].ends_with(b"\n") {
            append(path, file, "\n")?;
        }
        Ok(log)
    }

    /// The log that is written in `bytes`, and where its last line ends.
    fn parse(path: &Path, bytes: &[u8], run: Option<u64>) -> Result<(Self, usize), DpError> {
        let damaged = |reason: &str| {
            DpError::state(format!(
                "{} is damaged ({reason}); restore the file from a backup, or start a new run with a \
                 budget of its own",
                path.display()
            ))
        };
        let (complete, tail) = split_tail(bytes);
        let end = match tail {
            // A line is written before its release is made: one that is not complete was not released.
            Tail::None | Tail::CutOff => complete,
            Tail::Complete => bytes.len(),
            Tail::Damaged => {
                return Err(damaged("the end of its last line is not what was written"));
            }
        };
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged("not a text"))?;
        let mut lines = text.lines();
        let header = lines.next().and_then(checked).ok_or_else(|| damaged("no header"))?;
        let header: Header = serde_json::from_str(header)
            .map_err(|error| damaged(&format!("the header is unknown: {error}")))?;
        if header.format != FORMAT {
            return Err(DpError::state(format!(
                "{} has format {}, known is {FORMAT}; resume with the version of burn-dp that wrote it",
                path.display(),
                header.format
            )));
        }
        if run.is_some_and(|run| run != header.run) {
            return Err(DpError::state(format!(
                "{} belongs to another run; give every run a folder of its own",
                path.display()
            )));
        }
        let mut log = Self::new(header.run);
        for (step, text) in (0..).zip(lines) {
            let unreadable = || damaged(&format!("line {} is not what was written", step + 2));
            let text = checked(text).ok_or_else(unreadable)?;
            let line: Line = serde_json::from_str(text).map_err(|_| unreadable())?;
            if line.step != step || line.event.is_none() && log.events.is_empty() {
                return Err(unreadable());
            }
            log.push(line.mark, line.event);
        }
        Ok((log, end))
    }

    /// All releases, with the header of `empty`.
    pub(crate) fn ledger(&self, mut empty: PrivacyLedger) -> Result<PrivacyLedger, DpError> {
        for (event, count) in &self.events {
            empty.record_many(event, *count)?;
        }
        Ok(empty)
    }
}

impl fmt::Debug for ReleaseLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseLog").field("releases", &self.len()).finish_non_exhaustive()
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    a == b || real(a) == real(b)
}

/// One line: a check sum and what it checks.
fn line(value: &impl Serialize) -> Result<String, DpError> {
    let json = serde_json::to_string(value)
        .map_err(|error| DpError::state(format!("a release cannot be written: {error}")))?;
    Ok(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())))
}

/// The content of a line whose check sum is right.
fn checked(line: &str) -> Option<&str> {
    let (sum, json) = line.split_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == crc32fast::hash(json.as_bytes())).then_some(json)
}

/// What follows the last line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    None,
    /// The beginning of a line, whose writing was interrupted.
    CutOff,
    /// A line without its line break. It counts: to forget a release would be worse than one too many.
    Complete,
    /// A whole line, and a byte of it is not what was written.
    Damaged,
}

/// Where the last line break is behind, and what follows it.
fn split_tail(bytes: &[u8]) -> (usize, Tail) {
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

/// Whether a log has no release: nothing is lost with it.
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

/// Down to the disk: what follows must not be known to anybody before it is there.
fn append(path: &Path, file: &mut File, text: &str) -> Result<(), DpError> {
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_data())
        .map_err(|error| DpError::io(path, error))
}

/// Two processes that continue one run would release from the same draws.
fn lock(path: &Path, file: &File) -> Result<(), DpError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(DpError::state(format!(
            "{} is in use: the run goes on elsewhere; wait until it has ended",
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
        let mut log = ReleaseLog::new(7);
        log.record(0, &event(), mark(0)).unwrap();
        log.attach(&path, false).unwrap();
        for step in 1..releases {
            log.record(step.into(), &event(), mark(step)).unwrap();
        }
        path
    }

    #[test]
    fn what_was_released_before_and_after_the_first_checkpoint_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 5);
        let found = ReleaseLog::read(&path, 7).unwrap();
        assert_eq!(found.len(), 5);
        assert_eq!(found.marks, (0..5).map(mark).collect::<Vec<_>>());
        assert_eq!(found.events, [(event(), 5)]);
    }

    #[test]
    fn a_step_that_is_made_again_is_free_if_it_is_the_same_and_refused_if_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 3);
        let mut found = ReleaseLog::read(&path, 7).unwrap();
        assert!(!found.record(1, &event(), mark(1)).unwrap());
        let error = found.record(2, &event(), mark(9)).unwrap_err().to_string();
        assert!(error.contains("step 2") && error.contains("skip_lost_steps"), "{error}");
        assert!(found.record(3, &event(), mark(3)).unwrap());
        let error = found.record(5, &event(), mark(5)).unwrap_err().to_string();
        assert!(error.contains("step 5 cannot follow 4 releases"), "{error}");
    }

    #[test]
    fn a_line_that_was_cut_off_was_not_released_and_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 4);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let mut found = ReleaseLog::read(&path, 7).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.record(3, &event(), mark(3)).unwrap());
        drop(found);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    // One bit of the disk must not make a release unmade.
    #[test]
    fn no_flipped_bit_makes_the_log_forget_a_release() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 3);
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &damaged).unwrap();
            // Digits of the check sum are the same in capitals.
            match ReleaseLog::read(&path, 7) {
                Ok(found) => assert_eq!(found.len(), 3, "bit {bit}"),
                Err(error) => assert!(error.to_string().contains("releases.log"), "{error}"),
            }
            if bit / 8 == bytes.len() - 1 {
                let error = ReleaseLog::read(&path, 7).unwrap_err().to_string();
                assert!(error.contains("the end of its last line"), "{error}");
            }
        }
    }

    #[test]
    fn every_cut_of_the_last_line_forgets_it_unless_nothing_but_the_line_break_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 3);
        let bytes = fs::read(&path).unwrap();
        let last = bytes[..bytes.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
        for cut in last..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let releases = if cut == bytes.len() - 1 { 3 } else { 2 };
            assert_eq!(ReleaseLog::read(&path, 7).unwrap().len(), releases, "{cut}");
            let end = if releases == 3 { bytes.len() } else { last };
            assert_eq!(fs::read(&path).unwrap(), bytes[..end]);
        }
    }

    #[test]
    fn a_log_without_a_release_is_replaced_where_a_run_begins_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("releases.log");
        let header = super::line(&Header { format: FORMAT, run: 7 }).unwrap();
        let cut = format!("{header}0123abcd {{\"step\":0,");
        for left in [header.as_str(), &cut, &header[..5], &header[..header.len() - 1], ""] {
            fs::write(&path, left).unwrap();
            ReleaseLog::refuse_without_checkpoint(&path).unwrap();
            if !left.is_empty() {
                let error = ReleaseLog::new(8).attach(&path, false).unwrap_err().to_string();
                assert!(error.contains("another run") || error.contains("damaged"), "{error}");
            }
            fs::write(&path, left).unwrap();
            let mut run = ReleaseLog::new(8);
            run.record(0, &event(), mark(3)).unwrap();
            run.attach(&path, true).unwrap();
            drop(run);
            assert_eq!(ReleaseLog::read(&path, 8).unwrap().len(), 1);
        }
        // One that a run has just begun to write is its own.
        fs::remove_file(&path).unwrap();
        let mut first = ReleaseLog::new(7);
        first.attach(&path, true).unwrap();
        let error = ReleaseLog::new(8).attach(&path, true).unwrap_err().to_string();
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
            (&text, "knows of 1 releases"),
            (&unbroken, "knows of 1 releases"),
            (&merged, "damaged"),
            (&damaged, "damaged"),
        ] {
            fs::write(&path, left).unwrap();
            let error = ReleaseLog::refuse_without_checkpoint(&path).unwrap_err().to_string();
            assert!(error.contains("releases.log") && error.contains(reason), "{error}");
            assert!(error.contains("backup") && error.contains("new run"), "{error}");
            assert!(ReleaseLog::new(8).attach(&path, true).is_err());
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
            ReleaseLog::read(&path, run).unwrap_err().to_string()
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
        let header = super::line(&Header { format: 9, run: 7 }).unwrap();
        assert!(refused(&header, 7).contains("format 9"));
        fs::remove_file(&path).unwrap();
        let error = ReleaseLog::read(&path, 7).unwrap_err().to_string();
        assert!(error.contains("is missing") && error.contains("backup"), "{error}");
    }

    #[test]
    fn a_run_has_one_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 2);
        let mut run = ReleaseLog::read(&path, 7).unwrap();
        run.attach(&folder.path().join(".").join("releases.log"), false).unwrap();
        let error = run.attach(&folder.path().join("other.log"), false).unwrap_err().to_string();
        assert!(
            error.contains("fall behind") && error.contains("save where the log is"),
            "{error}"
        );
        assert!(!folder.path().join("other.log").exists());
    }

    #[test]
    fn a_log_that_another_run_writes_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 2);
        let first = ReleaseLog::read(&path, 7).unwrap();
        let error = ReleaseLog::read(&path, 7).unwrap_err().to_string();
        assert!(error.contains("is in use"), "{error}");
        drop(first);
        assert!(ReleaseLog::read(&path, 7).is_ok());
    }
}
