//! Time and memory of a step against its sizes, with fitted exponents.

mod axis;
mod fit;
mod options;
mod report;

use burn_dp_examples::training::{BackendName, TrainError, checks, files, typed};

pub use axis::Axis;
pub use options::ScalingOptions;
pub use report::{Growth, Point, ScalingFigures};

use super::process::Process;
use super::report::median_and_minimum;
use super::turns::{Amount, take_turns};
use super::worker::{self, WorkerOptions};
use super::{InnerOptimizer, cores};

/// Measures, prints the tables, and writes the files.
///
/// A size at which a process fails is reported on standard error and skipped.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option or if nothing could be measured, and
/// [`TrainError::Io`] if a file cannot be written.
pub(super) fn run(options: &ScalingOptions) -> Result<(), TrainError> {
    let values = options.values.iter().map(|&value| ("--values", value));
    checks::at_least_one(values.chain([("--blocks", options.blocks)]))?;
    checks::positive([("--seconds", options.seconds)])?;
    for (name, path) in [("--json", &options.json), ("--svg", &options.svg)] {
        path.as_deref().map_or(Ok(()), |path| checks::file(name, path, None))?;
    }
    if !options.values.is_empty() && options.axes.len() != 1 {
        let reason = "needs a single axis; add --axes with one name";
        return Err(TrainError::option("--values", reason));
    }
    let reads_images = options.axes.contains(&Axis::Image);
    if let (true, Some(small)) = (reads_images, options.values.iter().find(|&&value| value < 8)) {
        let reason = format!("must be at least 8 pixels for the axis image, got {small}");
        return Err(TrainError::option("--values", reason));
    }
    let mut points = Vec::new();
    for threads in cores::threads(&options.threads)? {
        for &axis in &options.axes {
            let values =
                if options.values.is_empty() { axis.values() } else { options.values.as_slice() };
            for &value in values {
                points.extend(measure(options, axis, value, threads));
            }
        }
    }
    if points.is_empty() {
        let reason = "leaves nothing that could be measured; the reasons are printed above";
        return Err(TrainError::option("--axes", reason));
    }
    let figures = ScalingFigures::new(points);
    println!("{}", figures.tables());
    if let Some(path) = &options.json {
        files::write_json(path, &figures)?;
    }
    match &options.svg {
        Some(path) => figures.draw(path),
        None => Ok(()),
    }
}

fn measure(options: &ScalingOptions, axis: Axis, value: usize, threads: usize) -> Vec<Point> {
    let (network, sizes, batch) = axis.subject(value);
    let (name, model) = (typed(axis), typed(network));
    eprintln!("{name} {value} of {model}, {threads} thread(s)");
    let left_out = |worker: &WorkerOptions, reason: String| {
        eprintln!("note: {} is left out at {name} {value}: {reason}", typed(worker.algorithm));
    };
    let (mut workers, mut processes): (Vec<WorkerOptions>, Vec<Process>) = (vec![], vec![]);
    for &algorithm in &options.algorithms {
        let worker = WorkerOptions {
            network,
            sizes,
            batch,
            algorithm,
            optimizer: InnerOptimizer::Sgd,
            backend: BackendName::Flex,
            threads,
            physical_batch_size: None,
        };
        match worker::start(&worker) {
            Ok(process) => {
                workers.push(worker);
                processes.push(process);
            }
            Err(reason) => left_out(&worker, reason),
        }
    }
    let amount = Amount::Milliseconds(options.seconds * 1e3);
    let results = take_turns(&mut processes, options.blocks, |_| amount);
    let mut points = Vec::new();
    for ((worker, process), result) in workers.iter().zip(&processes).zip(results) {
        let block = match result {
            Ok(block) => block,
            Err(reason) => {
                left_out(worker, reason);
                continue;
            }
        };
        let (ms, ms_min) = median_and_minimum(block.ms);
        let peak_mib = process.peak_mib();
        points.push(Point {
            axis: name.clone(),
            model: model.clone(),
            algorithm: typed(worker.algorithm),
            threads,
            value,
            ms,
            ms_min,
            cpu_ms: block.cpu_ms,
            peak_mib,
            step_mib: peak_mib.zip(process.base_mib).map(|(peak, base)| peak - base),
        });
    }
    points
}
