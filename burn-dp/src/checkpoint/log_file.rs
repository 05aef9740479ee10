//! The log of releases on disk, which restoring a checkpoint does not roll back.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use burn_dp_accountant::DpEvent;

use super::fail_point::{Operation, operation};
use super::folder::{private_options, remove, sync_parent, write_at};
use super::log_content::{Header, Line, is_unused, is_without_header, parse, written};
use super::log_lines::{self, checked};
use super::log_lock::locked;
use crate::DpError;
use crate::optim::releases::{Appended, Lock, Mark, ReleaseSink, Releases};

/// The name of the log in a folder of checkpoints.
pub(super) const RELEASES: &str = "releases.log";

/// The file of a run to which every release is appended before its noise is drawn.
///
/// One handle locks, reads, and writes it. On Windows, a file that was opened only for appending
/// cannot be locked, and while it is locked no other handle can read it, not even one of the same
/// process.
///
/// # Privacy
///
/// A release is on disk before any part of it leaves the process, so returning to a checkpoint does
/// not restore any budget, whatever happened to the process. The file is locked while a run uses
/// it; the statement of a run says so if the file system has no locks.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    lock: Lock,
    /// The length of the complete lines.
    end: u64,
    /// Whether a write failed, so that the end of the file is unknown.
    broken: bool,
}

/// A log that contains releases but has no checkpoint and no running owner.
pub(super) struct Abandoned {
    pub(super) run: u64,
    pub(super) releases: u64,
    /// Nobody else uses the log until this is dropped.
    _file: File,
}

/// What to do with a log without releases that a killed process of another run left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusedLog {
    /// Replace it: no checkpoint belongs to it.
    Replace,
    /// Reject it like any other.
    Refuse,
}

impl ReleaseSink for LogFile {
    fn append<'a>(&'a mut self, step: u64, mark: Mark, event: Option<&'a DpEvent>) -> Appended<'a> {
        let line = log_lines::line(&Line { step, mark, event: event.cloned() });
        Box::pin(std::future::ready(line.and_then(|line| self.append_text(&line))))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> Lock {
        self.lock
    }
}

impl LogFile {
    /// Stores the releases of a run in the file `path` from now on, including the releases so far.
    /// Does nothing if they are already stored there.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the run has another log: of two logs, one would miss
    /// later releases, and resuming with it would restore spent budget. Returns
    /// [`DpError::SavedState`] if the file belongs to another run, is used by another process, or
    /// has other releases.
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
        let mut log = Self::open(path, private_options().create(true))?;
        let bytes = log.read_all()?;
        // An empty file was just created by a killed process.
        let is_new = bytes.is_empty() || (unused == UnusedLog::Replace && is_unused(&bytes));
        if is_new {
            if let Err(error) = log.begin(releases) {
                log.discard();
                return Err(error);
            }
        } else {
            let (found, end) = parse(path, &bytes, Some(releases.run()))?;
            if written(&found)? != written(releases)? {
                return Err(DpError::saved_state(format!(
                    "{} has {} releases and the run {}; resume from the newest checkpoint there, \
                     or give the run its own folder",
                    path.display(),
                    found.len(),
                    releases.len()
                )));
            }
            log.mend(&bytes, end)?;
        }
        releases.attach(log);
        Ok(())
    }

    /// Returns the log if it has releases that no checkpoint belongs to and that a new run in its
    /// place would not account for.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the log is damaged, or in use.
    pub(super) fn abandoned(path: &Path) -> Result<Option<Abandoned>, DpError> {
        let failed = |error| DpError::io(path, error);
        let mut file = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        // A shared lock, because it only requires a file that is open for reading on every system.
        locked(path, file.try_lock_shared())?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        if is_unused(&bytes) {
            return Ok(None);
        }
        let (found, _) = parse(path, &bytes, None)?;
        Ok(Some(Abandoned { run: found.run(), releases: found.len(), _file: file }))
    }

    /// Returns whether a file with the header of a log exists.
    pub(super) fn is_log(path: &Path) -> Result<bool, DpError> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            read => read.map_err(|error| DpError::io(path, error))?,
        };
        let header = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let header = std::str::from_utf8(header).ok().and_then(checked);
        Ok(header.is_some_and(|json| serde_json::from_str::<Header>(json).is_ok()))
    }

    /// Returns whether a process has locked the log.
    pub(super) fn is_in_use(path: &Path) -> bool {
        let file = File::open(path);
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }

    /// Returns whether a log was being created, and has no complete header.
    pub(super) fn has_no_header(path: &Path) -> bool {
        fs::read(path).is_ok_and(|bytes| is_without_header(&bytes))
    }

    /// Returns the run of a log without releases, if the log has a complete header.
    pub(super) fn unused_run(path: &Path) -> Option<u64> {
        let bytes = fs::read(path).ok().filter(|bytes| is_unused(bytes))?;
        parse(path, &bytes, None).ok().map(|(found, _)| found.run())
    }

    /// Returns the releases of the run `run`, which are stored in this file from now on.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file is missing, damaged, or in use, has another
    /// version, or belongs to another run.
    pub(crate) fn read(path: &Path, run: u64) -> Result<Releases, DpError> {
        if !path.exists() {
            return Err(DpError::saved_state(format!(
                "{} is missing: without it, the releases after the checkpoint are unknown, and \
                 budget would be spent twice; restore the file from a backup, or start a new run \
                 with its own budget",
                path.display()
            )));
        }
        let mut log = Self::open(path, &mut OpenOptions::new())?;
        let bytes = log.read_all()?;
        let (mut releases, end) = parse(path, &bytes, Some(run))?;
        log.mend(&bytes, end)?;
        releases.attach(log);
        Ok(releases)
    }

    fn open(path: &Path, options: &mut OpenOptions) -> Result<Self, DpError> {
        let opened = operation(Operation::Write)
            .and_then(|()| options.read(true).write(true).open(path))
            .map_err(|error| DpError::io(path, error))?;
        let lock = locked(path, opened.try_lock())?;
        Ok(Self { path: path.to_path_buf(), file: opened, lock, end: 0, broken: false })
    }

    fn read_all(&mut self) -> Result<Vec<u8>, DpError> {
        let mut bytes = Vec::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_end(&mut bytes));
        read.map_err(|error| DpError::io(&self.path, error))?;
        Ok(bytes)
    }

    /// Writes the releases so far. The header is written last, so a log is either complete or
    /// [unused](is_unused).
    fn begin(&mut self, releases: &Releases) -> Result<(), DpError> {
        let text = written(releases)?;
        let header = text.find('\n').map_or(text.len(), |end| end + 1);
        let (header, lines) = text.as_bytes().split_at(header);
        let file = &mut self.file;
        let written = file.set_len(0).and_then(|()| match lines {
            [] => Ok(()),
            lines => write_at(file, header.len() as u64, lines),
        });
        let written = written.and_then(|()| write_at(file, 0, header));
        written.map_err(|error| DpError::io(&self.path, error))?;
        self.end = text.len() as u64;
        sync_parent(&self.path)
    }

    /// Removes a log whose initialization failed.
    fn discard(self) {
        let _ = self.file.set_len(0);
        let _ = remove(&self.path);
    }

    /// Appends to the disk, not only to the cache of the operating system: the noise that follows
    /// must not leave the process before the line is written.
    fn append_text(&mut self, text: &str) -> Result<(), DpError> {
        if self.broken {
            return Err(DpError::state(format!(
                "a release could not be written to {}, and nothing is released after it; resume \
                 from the last checkpoint",
                self.path.display()
            )));
        }
        if let Err(error) = write_at(&mut self.file, self.end, text.as_bytes()) {
            self.broken = true;
            // Without it, the next process removes the incomplete line.
            let _ = self.file.set_len(self.end);
            return Err(DpError::io(&self.path, error));
        }
        self.end += text.len() as u64;
        Ok(())
    }

    /// Removes everything after the last complete line, which ends at `end`. A log that is rejected
    /// is left unchanged.
    fn mend(&mut self, bytes: &[u8], end: usize) -> Result<(), DpError> {
        self.end = end as u64;
        if end < bytes.len() {
            let cut = self.file.set_len(self.end);
            cut.map_err(|error| DpError::io(&self.path, error))?;
        }
        if !bytes[..end].ends_with(b"\n") {
            self.append_text("\n")?;
        }
        Ok(())
    }
}

pub(super) fn is_same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    a == b || real(a) == real(b)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::checkpoint::log_content::FORMAT;
    use crate::device_read::wait;

    fn event() -> DpEvent {
        DpEvent::dp_sgd_step(0.01, 1.0)
    }

    fn mark(number: u8) -> Mark {
        Mark([number; 16])
    }

    fn log(folder: &Path, releases: u8) -> PathBuf {
        let path = folder.join("releases.log");
        let mut log = Releases::new(7);
        wait(log.record(0, &event(), mark(0))).unwrap();
        LogFile::attach(&mut log, &path, UnusedLog::Refuse).unwrap();
        for step in 1..releases {
            wait(log.record(step.into(), &event(), mark(step))).unwrap();
        }
        path
    }

    /// Returns why the run `run` cannot store its releases in the file.
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
        assert!(wait(found.record(3, &event(), mark(3))).unwrap());
        drop(found);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    // Found by fuzzing.
    #[test]
    fn a_log_that_is_refused_keeps_its_cut_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 4);
        let text = fs::read_to_string(&path).unwrap();
        let cut = &text[..text.len() - 9];
        fs::write(&path, cut).unwrap();
        assert!(refused(7, &path, UnusedLog::Refuse).contains("has 3 releases and the run 0"));
        assert_eq!(fs::read_to_string(&path).unwrap(), cut);
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
            // The digits of the checksum are equivalent in uppercase.
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
            assert!(LogFile::abandoned(&path).unwrap().is_none());
            if !left.is_empty() {
                let error = refused(8, &path, UnusedLog::Refuse);
                assert!(error.contains("another run") || error.contains("damaged"), "{error}");
            }
            fs::write(&path, left).unwrap();
            let mut run = Releases::new(8);
            wait(run.record(0, &event(), mark(3))).unwrap();
            LogFile::attach(&mut run, &path, UnusedLog::Replace).unwrap();
            drop(run);
            assert_eq!(LogFile::read(&path, 8).unwrap().len(), 1);
        }
        for end in 0..header.len() {
            let mut left = header.as_bytes()[..end].to_vec();
            assert!(is_unused(&left), "{end}");
            left.fill(0);
            assert!(is_unused(&left), "{end}");
        }
        // A log that a run has just started to write is its own.
        fs::remove_file(&path).unwrap();
        let mut first = Releases::new(7);
        LogFile::attach(&mut first, &path, UnusedLog::Replace).unwrap();
        let error = refused(8, &path, UnusedLog::Replace);
        assert!(error.contains("is in use"), "{error}");
    }

    // Sharp edge: a file of another program has the name of the log.
    #[test]
    fn a_file_of_others_in_place_of_a_log_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("releases.log");
        let zeros_and = |count: usize, rest: &[u8]| [vec![0; count], rest.to_vec()].concat();
        for foreign in [
            b"v1".to_vec(),
            b"v1 is released\n".to_vec(),
            b"0123456789abcdef".to_vec(),
            b"01234567 {\"format\":2".to_vec(),
            [b"binary".to_vec(), vec![0; 40]].concat(),
            [b"01234567 {\"format\":1".to_vec(), zeros_and(40, b"\xff binary\n")].concat(),
            zeros_and(8, b"v1 is released\n"),
            zeros_and(40, b"v1 is released"),
            zeros_and(30, b"abc"),
        ] {
            fs::write(&path, &foreign).unwrap();
            let found = LogFile::abandoned(&path).err().unwrap().to_string();
            for error in [found, refused(8, &path, UnusedLog::Replace)] {
                assert!(error.contains("releases.log is damaged"), "{error}");
                assert!(error.contains("move it away"), "{error}");
            }
            assert_eq!(fs::read(&path).unwrap(), foreign);
        }
    }

    #[test]
    fn a_log_with_a_release_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 1);
        let text = fs::read_to_string(&path).unwrap();
        let unbroken = text.trim_end().to_string();
        let merged = text.replacen('\n', "\u{b}", 1);
        let damaged = text.replace("\"step\":0", "\"step\":1");
        for (left, expected) in
            [(&text, Some(1)), (&unbroken, Some(1)), (&merged, None), (&damaged, None)]
        {
            fs::write(&path, left).unwrap();
            match LogFile::abandoned(&path) {
                Ok(found) => assert_eq!(found.map(|found| found.releases), expected),
                Err(error) => {
                    let error = error.to_string();
                    assert!(expected.is_none() && error.contains("releases.log is damaged"));
                    assert!(error.contains("backup") && error.contains("new run"), "{error}");
                }
            }
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
    fn a_log_that_was_cut_before_its_header_is_unused() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 3);
        let bytes = fs::read(&path).unwrap();
        let header = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        // The lines are written first, then the header, each in two parts.
        for written in [0, header / 2] {
            for end in [header + 10, bytes.len()] {
                let mut cut = bytes[..end].to_vec();
                cut[written..header].fill(0);
                fs::write(&path, &cut).unwrap();
                assert!(LogFile::abandoned(&path).unwrap().is_none(), "{written} {end}");
                let mut run = Releases::new(9);
                LogFile::attach(&mut run, &path, UnusedLog::Replace).unwrap();
                drop(run);
                assert_eq!(LogFile::read(&path, 9).unwrap().len(), 0);
            }
        }
    }

    #[test]
    fn one_handle_locks_reads_and_writes_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(folder.path(), 2);
        let mut run = LogFile::read(&path, 7).unwrap();
        // Where locks are mandatory, as on Windows, no other handle can read the file now.
        assert!(LogFile::abandoned(&path).err().unwrap().to_string().contains("is in use"));
        assert!(wait(run.record(2, &event(), mark(2))).unwrap());
        drop(run);
        assert_eq!(LogFile::read(&path, 7).unwrap().len(), 3);
    }

    #[test]
    fn a_file_system_without_locks_is_told_from_a_lock_of_others() {
        use std::io::{Error, ErrorKind};
        let path = Path::new("releases.log");
        let tried = |error| locked(path, Err(fs::TryLockError::Error(error)));
        assert_eq!(locked(path, Ok(())).unwrap(), Lock::Held);
        assert_eq!(tried(ErrorKind::Unsupported.into()).unwrap(), Lock::Unsupported);
        if cfg!(target_os = "linux") {
            assert_eq!(tried(Error::from_raw_os_error(37)).unwrap(), Lock::Unsupported);
        }
        assert!(matches!(tried(ErrorKind::PermissionDenied.into()), Err(DpError::Io { .. })));
        let error = locked(path, Err(fs::TryLockError::WouldBlock)).unwrap_err().to_string();
        assert!(error.contains("is in use by another process"), "{error}");
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
