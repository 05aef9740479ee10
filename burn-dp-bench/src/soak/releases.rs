//! The releases of a run, as its log has them.

use std::path::Path;

/// The releases that a run is known to have made.
#[derive(Debug, Default)]
pub(super) struct Released(pub(super) u64);

impl Released {
    /// Takes what a process printed and what its log has after it.
    ///
    /// # Errors
    ///
    /// Returns a message if the log lacks a release.
    pub(super) fn after(&mut self, printed: u64, log: &Log) -> Result<(), String> {
        self.0 = self.0.max(printed);
        let is_lost = match log {
            Log::Releases(lines) => *lines < self.0,
            Log::Missing => self.0 > 0,
            Log::Removed => false,
        };
        if is_lost {
            return Err(format!("{} releases were made, and the log is: {log:?}", self.0));
        }
        if let Log::Releases(lines) = log {
            self.0 = *lines;
        }
        Ok(())
    }
}

/// The log of the releases of a run, after a process of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// The number of its complete lines.
    Releases(u64),
    /// The run has published its model, and removed the log.
    Removed,
    Missing,
}

impl Log {
    /// Reads the log in a file. A run with this model is at its end.
    pub(super) fn read(log: &Path, model: &Path) -> Self {
        match std::fs::read(log) {
            Ok(text) => {
                let lines = text.iter().filter(|&&byte| byte == b'\n').count();
                Self::Releases(lines.saturating_sub(1) as u64)
            }
            Err(_) if model.exists() => Self::Removed,
            Err(_) => Self::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::soak::subject::Subject;

    #[test]
    fn a_release_that_the_log_lacks_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        for subject in Subject::all() {
            let folder = folder.path().join(subject.name());
            let (log, model) = subject.files_in(&folder);
            for file in [&log, &model] {
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            }
            let write = |lines: usize| std::fs::write(&log, "line\n".repeat(1 + lines)).unwrap();
            let mut released = Released::default();
            released.after(0, &subject.log_in(&folder)).unwrap();
            write(3);
            released.after(0, &subject.log_in(&folder)).unwrap();
            // One line less than after the process before, or than the process printed.
            write(2);
            assert!(released.after(0, &subject.log_in(&folder)).is_err());
            write(3);
            assert!(released.after(4, &subject.log_in(&folder)).is_err());
            std::fs::remove_file(&log).unwrap();
            assert!(released.after(0, &subject.log_in(&folder)).is_err());
            std::fs::write(&model, "").unwrap();
            released.after(0, &subject.log_in(&folder)).unwrap();
        }
    }
}
