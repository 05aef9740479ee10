//! A contender in its own process, which runs steps on command.
//!
//! The process prints one JSON object per line: `{"ready": true, "base_mib": …}` after its start,
//! and `{"ms": [..]}` after each line `steps N` on its standard input. It exits when its input
//! ends. Everything else that it prints is ignored, and its standard error is shown if it fails.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::turns::{Block, Player};
use super::usage::Usage;

/// What a process prints after its start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) ready: bool,
    /// Resident size in MiB before the network was created.
    pub(super) base_mib: Option<f64>,
}

/// What a process prints after a block.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Times {
    /// Milliseconds of each counted step.
    pub(super) ms: Vec<f64>,
    /// Memory that the allocator of the device holds, in MiB, where there is one.
    #[serde(default)]
    pub(super) device_mib: Option<f64>,
}

/// The command for a block.
pub(super) const STEPS: &str = "steps";

/// A running contender.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: File,
    usage: Usage,
    /// Resident size in MiB before the network was created.
    pub(super) base_mib: Option<f64>,
    /// Memory of the device in MiB after the last block.
    pub(super) device_mib: Option<f64>,
}

impl Process {
    /// Starts a process and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the process cannot be started or ends before it is ready.
    pub(super) fn start(mut command: Command) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| format!("cannot start `{program}`: {error}");
        let errors = tempfile::tempfile().map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(errors.try_clone().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let Some(output) = output else { return Err(format!("`{program}` has no output")) };
        let (output, usage) = (BufReader::new(output), Usage::of(child.id()));
        let mut process =
            Self { child, input, output, errors, usage, base_mib: None, device_mib: None };
        process.base_mib = process.answer::<Ready>()?.base_mib;
        Ok(process)
    }

    /// Returns the largest resident size so far, in MiB.
    pub(super) fn peak_mib(&self) -> Option<f64> {
        self.usage.peak_mib()
    }

    /// Waits until no thread of the process runs, and returns its CPU time in milliseconds.
    fn settled(&self) -> Option<f64> {
        const PAUSE: Duration = Duration::from_millis(10);
        const LONGEST: Duration = Duration::from_secs(2);
        const IDLE_MS: f64 = 0.5;
        let start = Instant::now();
        let mut before = self.usage.cpu_ms()?;
        loop {
            std::thread::sleep(PAUSE);
            let now = self.usage.cpu_ms()?;
            if now - before < IDLE_MS || start.elapsed() > LONGEST {
                return Some(now);
            }
            before = now;
        }
    }

    /// Returns the next line that is an answer.
    fn answer<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, String> {
        loop {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => return Err(self.last_words()),
                Ok(_) => {}
            }
            if let Ok(answer) = serde_json::from_str(&line) {
                return Ok(answer);
            }
        }
    }

    /// Waits for the end of the process and returns why it ended.
    fn last_words(&mut self) -> String {
        drop(self.input.take());
        let status = self.child.wait().map(|status| status.to_string()).unwrap_or_default();
        let mut text = String::new();
        let read = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut text));
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        match (read, last) {
            (Ok(_), Some(last)) => format!("{last} ({status})"),
            _ => format!("the process ended without a message ({status})"),
        }
    }
}

impl Player for Process {
    fn block(&mut self, steps: usize) -> Result<Block, String> {
        let before = self.settled();
        let written = match &mut self.input {
            Some(input) => writeln!(input, "{STEPS} {steps}").and_then(|()| input.flush()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_err() {
            return Err(self.last_words());
        }
        let Times { ms, device_mib } = self.answer()?;
        self.device_mib = device_mib;
        let after = self.settled();
        let cpu_ms = after.zip(before).map(|(after, before)| (after - before) / (1 + steps) as f64);
        Ok(Block { ms, cpu_ms })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shell(script: &str) -> Result<Process, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command)
    }

    #[test]
    fn a_process_answers_and_other_output_is_ignored() {
        let script = r#"echo hello; echo '{"ready": true, "base_mib": 2.5}'
            while read word number; do echo noise; echo "{\"ms\": [$number, 1]}"; done"#;
        let mut process = shell(script).unwrap();
        assert_eq!(process.base_mib, Some(2.5));
        assert_eq!(process.block(3).unwrap().ms, [3.0, 1.0]);
        assert_eq!(process.device_mib, None);
        assert_eq!(process.block(8).unwrap().ms, [8.0, 1.0]);
    }

    #[test]
    fn a_process_that_ends_says_why() {
        let error = shell("echo 'first' >&2; echo 'no such layer' >&2; exit 3").err().unwrap();
        assert_eq!(error, "no such layer (exit status: 3)");
        let error = shell("exit 0").err().unwrap();
        assert_eq!(error, "the process ended without a message (exit status: 0)");
        let mut process = shell(r#"echo '{"ready": true}'; read line; kill -9 $$"#).unwrap();
        let error = process.block(1).unwrap_err();
        assert!(error.contains("signal: 9"), "{error}");
        let absent = Process::start(Command::new("no-such-program-anywhere")).err().unwrap();
        assert!(absent.starts_with("cannot start `no-such-program-anywhere`: "), "{absent}");
    }
}
