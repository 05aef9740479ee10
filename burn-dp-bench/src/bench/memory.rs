//! Peak memory of one algorithm, measured in its own process.

use std::process::Command;

use burn::optim::AdamConfig;

use super::contender::{Contender, LEARNING_RATE, NOISE_MULTIPLIER};
use super::subject::{Measure, Subject};
use super::{Algorithm, PeakOptions};
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::{BackendName, TrainError, device, typed};

/// Settings of the Linux allocator under which the largest resident size is the memory in use,
/// without memory kept for later: large blocks are mapped one by one, and one arena keeps the small
/// blocks.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
    ("MALLOC_ARENA_MAX", "1"),
];

/// Returns the peak memory in MiB of a process that makes a few steps and nothing else, the program
/// itself included. Returns `None` where the system does not report it.
///
/// Each algorithm gets its own process: within one process, the peak of the first algorithm would
/// hide the peak of the next.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the process cannot be started or fails.
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
    child.args(["--model", &typed(subject.model), "--algorithm", &typed(algorithm)]);
    child.args(["--image-size", &subject.image_size.to_string()]).envs(ALLOCATOR);
    let output = child.args(["--backend", &typed(backend)]).output().map_err(failed)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(failed(std::io::Error::other(message)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
}

/// Makes the steps and prints the peak memory of this process.
///
/// # Errors
///
/// Returns the error of a step that is refused.
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

/// Returns the largest resident size of this process so far, where Linux reports it.
fn own_peak_mib() -> Option<f64> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
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
