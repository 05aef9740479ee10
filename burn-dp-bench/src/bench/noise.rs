//! The throughput of the noise: the release of a sum, next to a pass over as many values.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use burn_dp::noise::GaussianMechanism;
use burn_dp::random::{InsecureSeed, NoiseSource, Purpose};
use burn_dp_examples::training::{BackendName, TrainError, checks, device, files, typed};
use clap::Args;
use serde::Serialize;

use super::report::median_and_minimum;
use super::{cores, worker};

/// Options of `bench noise`.
#[derive(Args, Debug, Clone)]
pub struct NoiseOptions {
    /// Values of a release.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub values: usize,
    /// Backend to run on.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// Measured releases.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub repetitions: usize,
    /// File for the figures.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The throughput on one backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoiseRow {
    /// Name of the backend.
    pub backend: String,
    /// Values of a release.
    pub values: usize,
    /// Cores that the process may use.
    pub cores: usize,
    /// Whether kernels of the device release the values, and not the host.
    pub on_device: bool,
    /// Median nanoseconds of a release, per value.
    pub release_ns: f64,
    /// Median nanoseconds, per value, of adding a number to each value, which reads and writes as
    /// much.
    pub pass_ns: f64,
    /// Release over pass.
    pub ratio: f64,
}

/// Measures, prints the figures, and writes them.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, [`TrainError::Privacy`] if a release is
/// rejected, and [`TrainError::Io`] if a file cannot be written.
pub(super) fn run(options: &NoiseOptions) -> Result<(), TrainError> {
    checks::at_least_one([("--values", options.values), ("--repetitions", options.repetitions)])?;
    if let Some(path) = &options.json {
        checks::file("--json", path, None)?;
    }
    let row = measure(options, &device(options.backend)?)?;
    let place = if row.on_device { "the device" } else { "the host" };
    println!(
        "{}: {} values, released by {place} ({} cores)\n  release  {:.2} ns a value\n  pass     \
         {:.2} ns a value\n  ratio    {:.2}",
        row.backend, row.values, row.cores, row.release_ns, row.pass_ns, row.ratio
    );
    match &options.json {
        Some(path) => files::write_json(path, &[row]),
        None => Ok(()),
    }
}

fn measure(options: &NoiseOptions, device: &Device) -> Result<NoiseRow, TrainError> {
    let mechanism = GaussianMechanism::new(1.0, 1.0 / 256.0)?;
    let on_device = GaussianMechanism::releases_on(device);
    let mut source = NoiseSource::insecure(InsecureSeed(1));
    let sums = Tensor::<1>::zeros([options.values], device);
    let mut host = vec![0.0; options.values];
    let (mut release, mut pass) = (Vec::new(), Vec::new());
    // The first release compiles the kernels.
    for step in 0..=options.repetitions as u64 {
        let stream = source.begin_step(Purpose::Gradient, step)?.stream(0)?;
        let start = Instant::now();
        if on_device {
            // Kept until it is computed, like the sum below. The device would compute a release
            // that is dropped; only a fused operation on values can be left out.
            let released = mechanism.release_on_device(stream, sums.clone());
            worker::synchronize(device)?;
            drop(released);
        } else {
            mechanism.release(stream, &mut host)?;
        }
        let released = start.elapsed();
        let start = Instant::now();
        let sum = sums.clone().add_scalar(1.0);
        worker::synchronize(device)?;
        drop(sum);
        let passed = start.elapsed();
        if step > 0 {
            let ns = |time: std::time::Duration| time.as_secs_f64() * 1e9 / options.values as f64;
            release.push(ns(released));
            pass.push(ns(passed));
        }
    }
    let ((release_ns, _), (pass_ns, _)) = (median_and_minimum(release), median_and_minimum(pass));
    Ok(NoiseRow {
        backend: typed(options.backend),
        values: options.values,
        cores: cores::available(),
        on_device,
        release_ns,
        pass_ns,
        ratio: release_ns / pass_ns,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn options(values: usize, json: Option<PathBuf>) -> NoiseOptions {
        NoiseOptions { values, backend: BackendName::Flex, repetitions: 3, json }
    }

    #[test]
    fn a_release_is_measured_next_to_a_pass_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("noise.json");
        run(&options(10_000, Some(path.clone()))).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let row = rows[0].as_object().unwrap();
        assert_eq!((row["backend"].as_str(), row["values"].as_u64()), (Some("flex"), Some(10_000)));
        assert_eq!(row["on_device"], false);
        let [release, pass] = ["release_ns", "pass_ns"].map(|name| row[name].as_f64().unwrap());
        assert!(release > 0.0 && pass > 0.0);
        assert_eq!(row["ratio"].as_f64(), Some(release / pass));
    }

    #[test]
    fn nothing_to_measure_is_refused() {
        let error = run(&options(0, None)).unwrap_err().to_string();
        assert!(error.contains("--values must be at least 1, got 0"), "{error}");
    }
}
