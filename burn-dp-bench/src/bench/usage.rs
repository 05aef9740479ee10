//! CPU time and memory of a process, where Linux reports them.

use std::path::{Path, PathBuf};

/// Ticks of the kernel in a second, as programs see them.
const TICKS: f64 = 100.0;

/// A process of this machine.
#[derive(Debug, Clone)]
pub(super) struct Usage {
    folder: PathBuf,
}

impl Usage {
    /// Returns the process with this number.
    pub(super) fn of(process: u32) -> Self {
        Self { folder: Path::new("/proc").join(process.to_string()) }
    }

    /// Returns the CPU time of all threads since the start, in milliseconds.
    pub(super) fn cpu_ms(&self) -> Option<f64> {
        // The sum over the threads is exact to a nanosecond, the total of a process to 10 ms.
        let threads = std::fs::read_dir(self.folder.join("task")).ok()?;
        let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
            on_cpu(&std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?)
        };
        let exact = threads.map(of_thread).sum::<Option<f64>>();
        exact.or_else(|| {
            let text = std::fs::read_to_string(self.folder.join("stat")).ok()?;
            Some(ticks(&text)? * 1e3 / TICKS)
        })
    }

    /// Returns the largest resident size so far, in MiB.
    pub(super) fn peak_mib(&self) -> Option<f64> {
        peak_of(&std::fs::read_to_string(self.folder.join("status")).ok()?)
    }
}

/// Returns the largest resident size of this process so far, in MiB.
pub(super) fn own_peak_mib() -> Option<f64> {
    Usage::of(std::process::id()).peak_mib()
}

/// Returns the milliseconds in the first field of `schedstat`.
fn on_cpu(schedstat: &str) -> Option<f64> {
    let nanoseconds: f64 = schedstat.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e6)
}

/// Returns the ticks of a process in its own code and in the kernel.
fn ticks(stat: &str) -> Option<f64> {
    // The name of the program can contain anything, in parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

fn peak_of(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn times_and_peaks_are_read_from_the_files_of_the_kernel() {
        assert_eq!(peak_of("VmPeak:\t  99 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n"), Some(2.0));
        assert_eq!(peak_of("VmPeak:\t  99 kB\n"), None);
        assert_eq!(on_cpu("338021272 180720164 97\n"), Some(338.021_272));
        let stat = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 32 4 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some(36.0));
        assert_eq!(ticks("7"), None);
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

    #[cfg(target_os = "linux")]
    #[test]
    fn work_takes_cpu_time_of_this_process_and_none_of_an_absent_one() {
        let own = Usage::of(std::process::id());
        let before = own.cpu_ms().unwrap();
        let mut sum = 0_u64;
        while own.cpu_ms().unwrap() < before + 20.0 {
            sum = std::hint::black_box((0..100_000_u64).fold(sum, u64::wrapping_add));
        }
        assert!(Usage::of(u32::MAX).cpu_ms().is_none());
        assert!(Usage::of(u32::MAX).peak_mib().is_none());
    }
}
