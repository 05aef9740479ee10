//! Runs of single tests, each without one guard.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::build::Test;
use super::copy::VARIABLE;

/// How a test ended without a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It failed, as it should.
    Noticed,
    /// It passed.
    Passed,
    /// It had not ended after the time limit.
    TimedOut,
}

/// A test and the guard that is taken away, if any.
#[derive(Debug, Clone)]
pub(crate) struct Task<'a> {
    /// The name under which the guard is taken away.
    pub(crate) switch: Option<&'a str>,
    /// The test.
    pub(crate) test: &'a Test,
}

/// Runs a test in the folder of its package.
///
/// # Errors
///
/// Returns a message if the program cannot be started.
fn run(task: &Task, package: &Path, limit: Duration) -> Result<(Outcome, Duration), String> {
    let failed = |error| format!("{}: {error}", task.test.program.display());
    let mut program = Command::new(&task.test.program);
    program.args(["--exact", &task.test.path]).current_dir(package);
    program.env("CARGO_MANIFEST_DIR", package).env_remove(VARIABLE);
    program.envs(task.switch.map(|switch| (VARIABLE, switch)));
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = program.spawn().map_err(failed)?;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            let outcome = if status.success() { Outcome::Passed } else { Outcome::Noticed };
            return Ok((outcome, start.elapsed()));
        }
        if start.elapsed() > limit {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Ok((Outcome::TimedOut, start.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs all tasks, as many at a time as there are processors, and reports each as it ends.
///
/// # Errors
///
/// Returns the message of a program that cannot be started.
pub(crate) fn run_all(
    tasks: &[Task],
    package: &Path,
    limit: Duration,
    report: impl Fn(usize, Outcome) + Sync,
) -> Result<Vec<(Outcome, Duration)>, String> {
    let results = Mutex::new(vec![None; tasks.len()]);
    let queue = Mutex::new(tasks.iter().enumerate());
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, task)) = next() {
                    let result = run(task, package, limit);
                    if let Ok((outcome, _)) = &result {
                        report(index, *outcome);
                    }
                    if let Ok(mut results) = results.lock() {
                        results[index] = Some(result);
                    }
                }
            });
        }
    });
    let results = results.into_inner().map_err(|error| error.to_string())?;
    let missing = || Err("a test was not run".to_string());
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Runs a shell script in place of a program with tests.
    fn outcome(script: &str, switch: Option<&str>) -> Outcome {
        let folder = std::env::temp_dir().join(format!(
            "xtask-run-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&program, mode).unwrap();
        let test = Test { program, path: "a::b".into() };
        let task = Task { switch, test: &test };
        let (outcome, _) = run(&task, &folder, Duration::from_millis(300)).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        outcome
    }

    #[test]
    fn a_failure_and_an_abort_are_noticed_and_a_hang_is_not() {
        assert_eq!(outcome("exit 101", None), Outcome::Noticed);
        assert_eq!(outcome("kill -ABRT $$", None), Outcome::Noticed);
        assert_eq!(outcome("exit 0", None), Outcome::Passed);
        assert_eq!(outcome("exec sleep 60", None), Outcome::TimedOut);
    }

    #[test]
    fn the_program_gets_the_test_and_the_guard() {
        let script = format!("[ \"$1 $2 ${VARIABLE}\" = \"--exact a::b x\" ]");
        assert_eq!(outcome(&script, Some("x")), Outcome::Passed);
        assert_eq!(outcome(&script, None), Outcome::Noticed);
    }
}
