//! Runs of single tests, each without one guard.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::build::Test;
use super::copy::VARIABLE;
use crate::test::CASES;

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

/// A test and the guard that is removed, if any.
#[derive(Debug, Clone)]
pub(crate) struct Task<'a> {
    /// The name under which the guard is removed.
    pub(crate) switch: Option<&'a str>,
    /// The test.
    pub(crate) test: &'a Test,
}

/// Returns the process of a test in the folder of its package.
fn command(task: &Task, package: &Path) -> Command {
    let mut command = Command::new(&task.test.program);
    command.args(["--exact", &task.test.path]).current_dir(package);
    command.env("CARGO_MANIFEST_DIR", package).env_remove(VARIABLE);
    command.envs(Some(CASES).filter(|(name, _)| std::env::var_os(name).is_none()));
    command.envs(task.switch.map(|switch| (VARIABLE, switch)));
    command
}

/// Runs a process and waits for its end, or until the time limit.
///
/// # Errors
///
/// Returns a message if the process cannot be started.
fn run(command: &mut Command, limit: Duration) -> Result<(Outcome, Duration), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error| format!("{program}: {error}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn().map_err(failed)?;
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
                    let result = run(&mut command(task, package), limit);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Long enough for a shell on a machine with other work.
    #[cfg(unix)]
    const LONG: Duration = Duration::from_secs(300);

    #[cfg(unix)]
    fn outcome(script: &str, limit: Duration) -> Outcome {
        run(Command::new("sh").args(["-c", script]), limit).unwrap().0
    }

    #[cfg(unix)]
    #[test]
    fn a_failure_and_an_abort_are_noticed_and_a_hang_is_not() {
        assert_eq!(outcome("exit 101", LONG), Outcome::Noticed);
        assert_eq!(outcome("kill -ABRT $$", LONG), Outcome::Noticed);
        assert_eq!(outcome("exit 0", LONG), Outcome::Passed);
        assert_eq!(outcome("exec sleep 600", Duration::from_millis(100)), Outcome::TimedOut);
    }

    #[test]
    fn the_program_gets_the_test_the_guard_and_the_cases() {
        let test = Test { program: "program".into(), path: "a::b".into() };
        for switch in [Some("x"), None] {
            let command = command(&Task { switch, test: &test }, Path::new("package"));
            assert_eq!(command.get_args().collect::<Vec<_>>(), ["--exact", "a::b"]);
            let set = |variable: &str| {
                let mut env = command.get_envs().filter(|(name, _)| *name == variable);
                env.next().and_then(|(_, value)| value?.to_str().map(String::from))
            };
            assert_eq!(set(VARIABLE).as_deref(), switch);
            if std::env::var_os(CASES.0).is_none() {
                assert_eq!(set(CASES.0).as_deref(), Some(CASES.1));
            }
        }
    }
}
