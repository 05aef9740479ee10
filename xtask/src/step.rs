//! One step of a command: a process, or a check in this program.

use std::fmt;
use std::time::Instant;

use crate::guards;
use crate::lint;
use crate::process::Process;
use crate::web;
use crate::workspace;

/// What a command does, one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Starts a process and waits.
    Process(Process),
    /// Checks the structure and the words of all files.
    Structure,
    /// Removes the guards of the library.
    Guards(guards::Options),
    /// Builds, serves or tests the page for browsers.
    Web(web::Task),
}

impl Step {
    /// Runs the step.
    ///
    /// # Errors
    ///
    /// Returns a message if the process fails or a check finds something.
    pub(crate) fn run(&self) -> Result<(), String> {
        match self {
            Self::Process(process) => process.run(),
            Self::Structure => {
                eprintln!("$ {self}");
                lint::run(&workspace::root())
            }
            Self::Guards(options) => guards::run(options, &workspace::root()),
            Self::Web(task) => {
                eprintln!("$ {self}");
                task.run()
            }
        }
    }

    /// Runs the step and prints how long it took.
    ///
    /// # Errors
    ///
    /// Returns the message of [`run`](Self::run).
    pub(crate) fn run_timed(&self) -> Result<(), String> {
        let start = Instant::now();
        let result = self.run();
        eprintln!("took {:.0} s", start.elapsed().as_secs_f64());
        result
    }
}

/// Runs every step, whatever fails first.
///
/// # Errors
///
/// Returns all messages, a line each.
pub(crate) fn all<T>(steps: &[T], run: impl FnMut(&T) -> Result<(), String>) -> Result<(), String> {
    let failed: Vec<String> = steps.iter().map(run).filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\nerror: ")) }
}

impl From<Process> for Step {
    fn from(process: Process) -> Self {
        Self::Process(process)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => process.fmt(f),
            Self::Structure => f.write_str("check imports, words, columns, documents and lengths"),
            Self::Guards(_) => f.write_str("take each guard away and run its tests"),
            Self::Web(task) => task.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_after_a_failed_one_are_run() {
        let mut ran = Vec::new();
        let result = all(&["tests", "doc tests", "more"], |step| {
            ran.push(*step);
            if *step == "doc tests" { Ok(()) } else { Err(format!("{step} failed")) }
        });
        assert_eq!(ran, ["tests", "doc tests", "more"]);
        assert_eq!(result, Err("tests failed\nerror: more failed".into()));
        assert_eq!(all(&[0; 3], |_| Ok(())), Ok(()));
    }
}
