//! One run: killed, resumed, and compared with an undisturbed one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::random::Random;
use super::releases::Released;
use super::report::Report;
use super::subject::Subject;
use super::tiny::{MEASURED, PHASE, RELEASED, RESULTS};

/// Makes a process abort, or its disk appear full, at a file operation. burn-dp reads it in builds
/// with debug assertions.
const AT_OPERATION: &str = "BURN_DP_TEST_FAIL_AT_OPERATION";

/// More operations than a run performs.
const OPERATIONS: u64 = 200;

/// Maximum number of faults injected into a run.
const FAULTS: u64 = 6;

/// An undisturbed run.
pub(super) struct Reference {
    subject: Subject,
    /// The files that it left, by path, with the content of the files that must be equal.
    files: BTreeMap<String, Option<Vec<u8>>>,
    /// Its duration, if others are killed by signals too.
    time: Option<Duration>,
}

/// A fault injected into a process.
enum Fault {
    /// A signal after this time.
    Signal(Duration),
    /// An environment variable.
    AtOperation(String),
    None,
}

/// How a process ended.
struct Ended {
    status: ExitStatus,
    phase: String,
    released: u64,
    message: String,
}

impl Reference {
    pub(super) fn of(subject: Subject, signals: bool) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let began = Instant::now();
        let ended = start(subject, folder.path(), &Fault::None)?;
        if !ended.status.success() {
            return Err(format!("the undisturbed run failed: {}", ended.message));
        }
        let time = signals.then(|| began.elapsed());
        Ok(Self { subject, files: files(subject, folder.path())?, time })
    }

    /// Checks that each result file is absent or equals the undisturbed run's.
    fn check_results(&self, folder: &Path) -> Result<(), String> {
        for (name, content) in files(self.subject, &folder.join(RESULTS))? {
            let name = format!("{RESULTS}/{name}");
            match self.files.get(&name) {
                Some(expected) if expected.is_some() && *expected != content => {
                    return Err(format!("{name} differs from the undisturbed run"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the folder equals the undisturbed run's.
    fn check_end(&self, folder: &Path) -> Result<(), String> {
        let found = files(self.subject, folder)?;
        let names = |files: &BTreeMap<String, Option<Vec<u8>>>| {
            files.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        let (found_names, expected) = (names(&found), names(&self.files));
        if found_names != expected {
            return Err(format!("the run left {found_names}, the undisturbed one {expected}"));
        }
        self.check_results(folder)
    }
}

/// Makes one run, injecting faults along the way.
pub(super) fn cycle(
    reference: &Reference,
    random: &mut Random,
    report: &mut Report,
) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut released = Released::default();
    for fault in 0.. {
        let fault = match fault {
            FAULTS => Fault::None,
            _ => Fault::choose(random, reference.time),
        };
        let ended = start(reference.subject, folder.path(), &fault)?;
        released.after(ended.released, &reference.subject.log_in(folder.path()))?;
        reference.check_results(folder.path())?;
        if ended.status.success() {
            break;
        }
        if is_killed(ended.status, &fault) {
            report.count_kill(reference.subject.name(), &ended.phase);
        } else if ended.message.contains("no storage space") {
            report.full_disks += 1;
        } else {
            return Err(format!("refused after `{}`: {}", ended.phase, ended.message));
        }
    }
    report.runs += 1;
    report.count_releases(reference.subject.name(), released.0);
    reference.check_end(folder.path())
}

impl Fault {
    fn choose(random: &mut Random, time: Option<Duration>) -> Self {
        match (random.below(10), time) {
            (0..=4, Some(time)) => Self::Signal(time.mul_f64(random.below(1_000) as f64 / 1_000.0)),
            (0..=8, _) => Self::AtOperation(format!("abort:{}", 1 + random.below(OPERATIONS))),
            _ => Self::AtOperation(format!("full:{}", 1 + random.below(OPERATIONS))),
        }
    }
}

/// Runs a child to its end.
fn start(subject: Subject, folder: &Path, fault: &Fault) -> Result<Ended, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["--subject", subject.name(), "--child"]).arg(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("BURN_DP_DATA");
    if let Fault::AtOperation(operation) = fault {
        command.env(AT_OPERATION, operation);
    }
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let lines = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
            lines.map_while(Result::ok).collect::<Vec<_>>()
        })
    };
    let stdout = lines(stdout.map(|pipe| Box::new(pipe) as _));
    let stderr = lines(stderr.map(|pipe| Box::new(pipe) as _));
    if let Fault::Signal(after) = fault {
        std::thread::sleep(*after);
        child.kill().map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    let read = |lines: std::thread::JoinHandle<Vec<String>>| lines.join().unwrap_or_default();
    let (stdout, stderr) = (read(stdout), read(stderr));
    let phase = stdout.iter().rev().find_map(|line| line.strip_prefix(PHASE));
    let released = stdout.iter().rev().find_map(|line| line.strip_prefix(RELEASED));
    Ok(Ended {
        status,
        phase: phase.unwrap_or("start").to_string(),
        released: released.and_then(|number| number.parse().ok()).unwrap_or(0),
        message: stderr.join("\n"),
    })
}

#[cfg(unix)]
fn is_killed(status: ExitStatus, _: &Fault) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status).is_some()
}

#[cfg(not(unix))]
fn is_killed(status: ExitStatus, fault: &Fault) -> bool {
    // An error ends a child with exit code 1; so does termination by this process.
    !status.success() && (matches!(fault, Fault::Signal(_)) || status.code() != Some(1))
}

/// Returns the files below a folder, with the content of results that depend on nothing but the
/// run.
fn files(subject: Subject, folder: &Path) -> Result<BTreeMap<String, Option<Vec<u8>>>, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            // A checkpoint has files of the same names.
            let is_result = path.parent().is_some_and(|parent| parent.ends_with(RESULTS));
            let content = if is_result { subject.content(&path)? } else { None };
            // Depends on the steps that a single process ran, such as plots and measurements.
            if name.ends_with(".svg") || name.starts_with(MEASURED) {
                continue;
            }
            // Burn's learner decides which checkpoints it keeps.
            if subject != Subject::Loop && name.starts_with("run/checkpoint-") {
                continue;
            }
            found.insert(name, content);
        }
    }
    Ok(found)
}
