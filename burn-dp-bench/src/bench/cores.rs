//! Processes that run on a number of cores.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use burn_dp_examples::training::TrainError;

/// The variables that set the number of threads: of Rayon, which Flex and NdArray use, and of the
/// libraries under NumPy, PyTorch and JAX.
const VARIABLES: [&str; 4] =
    ["RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"];

/// Returns the number of cores that this process may use.
pub(super) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the numbers of threads of the option, or one thread for each core if there are none.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the first number that is 0 or greater than the number of
/// cores.
pub(super) fn threads(given: &[usize]) -> Result<Vec<usize>, TrainError> {
    let cores = available();
    match given.iter().find(|&&threads| threads == 0 || threads > cores) {
        Some(threads) => {
            let reason = format!(
                "must be between 1 and {cores}, the number of cores that this process may use, \
                 got {threads}"
            );
            Err(TrainError::option("--threads", reason))
        }
        None if given.is_empty() => Ok(vec![cores]),
        None => Ok(given.into()),
    }
}

/// Returns a command whose process has this number of threads and, where `taskset` can pin it, no
/// more cores than threads. Every contender gets the same cores.
pub(super) fn command(program: impl AsRef<OsStr>, threads: usize) -> Command {
    let mut command = match pinned(threads) {
        Some(cores) => {
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &cores]).arg(program);
            command
        }
        None => Command::new(program),
    };
    let threads = threads.to_string();
    command.envs(VARIABLES.map(|name| (name, threads.as_str())));
    command
}

/// Returns the cores for a number of threads, in the format of `taskset`; `None` if nothing needs
/// to be pinned or there is no `taskset`.
fn pinned(threads: usize) -> Option<String> {
    static HAS_TASKSET: OnceLock<bool> = OnceLock::new();
    if threads >= available() {
        return None;
    }
    let found = || {
        let mut command = Command::new("taskset");
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        let found = command.status().is_ok_and(|status| status.success());
        if !found {
            eprintln!(
                "note: no `taskset` to pin processes to cores; idle threads may use other cores \
                 where --threads is less than the number of cores"
            );
        }
        found
    };
    if !HAS_TASKSET.get_or_init(found) {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(first(list.trim(), threads))
}

/// Returns the first cores of a list such as `0-3,8`.
fn first(list: &str, threads: usize) -> String {
    let ranges = list.split(',').filter_map(|range| {
        let (start, end) = range.split_once('-').unwrap_or((range, range));
        Some(start.parse::<usize>().ok()?..=end.parse::<usize>().ok()?)
    });
    let cores: Vec<_> = ranges.flatten().take(threads).map(|core| core.to_string()).collect();
    cores.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_first_cores_of_the_allowed_ones_are_taken() {
        assert_eq!(first("0-3,8", 1), "0");
        assert_eq!(first("2-3,8,11", 3), "2,3,8");
        assert_eq!(first("5", 1), "5");
    }

    #[test]
    fn an_impossible_number_of_threads_is_refused_with_the_number_of_cores() {
        assert_eq!(threads(&[]).unwrap(), [available()]);
        assert_eq!(threads(&[1]).unwrap(), [1]);
        for wrong in [0, available() + 1] {
            let error = threads(&[1, wrong]).unwrap_err().to_string();
            let expected = format!("must be between 1 and {}", available());
            assert!(error.contains(&expected), "{error}");
            assert!(error.ends_with(&format!("got {wrong}")), "{error}");
        }
    }

    #[test]
    fn every_library_gets_the_number_of_threads() {
        let command = command("program", 1);
        let set = command.get_envs().filter(|(_, value)| *value == Some(OsStr::new("1")));
        assert_eq!(set.count(), VARIABLES.len());
    }
}
