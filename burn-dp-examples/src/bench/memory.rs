//! Peak memory of one algorithm, in a process of its own.

use std::process::Command;

use burn::optim::AdamConfig;
use clap::ValueEnum;

use super::contender::Contender;
use super::step::{LEARNING_RATE, NOISE_MULTIPLIER};
use super::subject::{Measure, Subject};
use super::{Algorithm, PeakOptions};
use crate::data::Batch;
use crate::models::Classifier;
use crate::training::{BackendName, TrainError, device};

/// How the allocator of Linux hands memory back, so that the largest resident size is what was in use
/// and not what was kept for later: large blocks are mapped one by one, and few arenas keep small ones.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
    ("MALLOC_ARENA_MAX", "1"),
];

/// Largest memory in MiB that a process takes which makes a few steps and nothing else, the program
/// itself included; nothing where the system does not tell.
///
/// A process of its own for each algorithm: within one, the peak of one algorithm would hide that of
/// the next.
///
/// # Errors
///
/// When the process cannot be started or fails.
pub(super) fn peak_mib(
    subject: Subject,
    batch: usize,
    algorithm: Algorithm,
    backend: BackendName,
) -> Result<Option<f64>, TrainError> {
    let program = std::env::current_exe().unwrap_or_else(|_| "bench".into());
    let failed = |source| TrainError::Io { path: program.clone(), source };
    let mut child = Command::new(&program);
    child.arg("peak").args(["--batch", &batch.to_string()]);
    child.args(["--model", &name(subject.model), "--algorithm", &name(algorithm)]);
    child.args(["--image-size", &subject.image_size.to_string()]).envs(ALLOCATOR);
    let output = child.args(["--backend", &name(backend)]).output().map_err(failed)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(failed(std::io::Error::other(message)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
}

/// Makes the steps and prints the peak of this process.
///
/// # Errors
///
/// When a step is refused.
pub(super) fn child(options: &PeakOptions) -> Result<(), TrainError> {
    let device = device(options.backend)?.autodiff();
    let subject = Subject { model: options.model, image_size: options.image_size };
    subject.measure(options.batch, &device, Steps { options })?;
    if let Some(mib) = own_peak_mib() {
        println!("{mib:.1}");
    }
    Ok(())
}

struct Steps<'a> {
    options: &'a PeakOptions,
}

impl Measure for Steps<'_> {
    type Output = Result<(), TrainError>;

    fn measure<M: Classifier>(self, model: M, batch: Batch<M::Inputs>) -> Self::Output {
        let mut contender = Contender::new(
            self.options.algorithm,
            model,
            AdamConfig::new().init(),
            LEARNING_RATE,
            self.options.batch,
            NOISE_MULTIPLIER,
            None,
        )?;
        for _ in 0..self.options.steps {
            contender.step(&batch)?;
        }
        Ok(())
    }
}

/// The largest resident size of this process so far, where Linux tells it.
fn own_peak_mib() -> Option<f64> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// The name of a choice, as it is typed.
pub(super) fn name(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status_of_a_process() {
        assert_eq!(peak_of("VmPeak:\t  99 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n"), Some(2.0));
        assert_eq!(peak_of("VmPeak:\t  99 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_grows_with_the_memory_in_use() {
        let before = own_peak_mib();
        let memory = vec![1_u8; 64 << 20];
        let after = own_peak_mib();
        assert!(memory.iter().step_by(4096).all(|&byte| byte == 1));
        assert!(after.zip(before).is_some_and(|(after, before)| after >= before.max(64.0)));
    }
}
