//! The time of one training step, compared between algorithms.

use super::process::Process;
use super::report::{self, Row, median_and_minimum};
use super::subject::Subject;
use super::turns::{Amount, take_turns};
use super::worker::{self, WorkerOptions};
use super::{Algorithm, InnerOptimizer, StepOptions, agreement, chart, cores, peer_lines};
use burn_dp_examples::training::{TrainError, checks, device, files, typed};

/// Measures, prints the table, and writes the figures and the picture.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, for a line of other frameworks that is
/// not a measurement, or if the private algorithms disagree; and [`TrainError::Io`] if a file
/// cannot be read or written, or a process fails.
pub(super) fn run(options: &StepOptions) -> Result<(), TrainError> {
    let batches = options.batch.iter().map(|&batch| ("--batch", batch));
    let others = [("--blocks", options.blocks), ("--image-size", options.image_size)];
    let physical = options.physical_batch_size.map(|size| ("--physical-batch-size", size));
    checks::at_least_one(batches.chain(others).chain(physical))?;
    checks::positive([("--seconds", options.seconds)])?;
    for (name, path) in [("--json", &options.json), ("--svg", &options.svg)] {
        path.as_deref().map_or(Ok(()), |path| checks::file(name, path, None))?;
    }
    let algorithms = algorithms(options);
    if options.svg.is_some() && !algorithms.iter().any(|algorithm| algorithm.is_private()) {
        let reason = "needs a private algorithm to draw; give --algorithms book-keeping too";
        return Err(TrainError::option("--svg", reason));
    }
    let stockless = options.models.iter().find(|network| !network.has_stock_layers());
    if let (true, Some(&network)) = (algorithms.contains(&Algorithm::Burn), stockless) {
        let reason = format!(
            "burn is not possible with {}, which exists with private layers only; leave one of \
             them out",
            typed(network)
        );
        return Err(TrainError::option("--algorithms", reason));
    }
    let threads = cores::threads(&options.threads)?;
    let peers = options.peers.as_deref().map_or(Ok(Vec::new()), peer_lines::read)?;
    let device = device(options.backend)?.autodiff();
    let sizes = options.sizes();
    let mut rows = Vec::new();
    for &network in &options.models {
        for &batch in &options.batch {
            let what = format!("{} with {batch} images", typed(network));
            eprintln!("{what}");
            let subject = Subject { network, sizes, is_stock: false };
            let (model, items) = subject.init(AGREEMENT_ITEMS.min(batch), &device);
            agreement::check(&model, &items, &what)?;
            for &threads in &threads {
                let worker = |&algorithm: &Algorithm| WorkerOptions {
                    network,
                    sizes,
                    batch,
                    algorithm,
                    optimizer: InnerOptimizer::Adam,
                    backend: options.backend,
                    threads,
                    physical_batch_size: options.physical_batch_size,
                };
                let workers: Vec<_> = algorithms.iter().map(worker).collect();
                rows.extend(measure(&workers, options)?);
            }
        }
    }
    println!("{}", report::table(&rows));
    if let Some(path) = &options.json {
        files::write_json(path, &rows)?;
    }
    match &options.svg {
        Some(path) => chart::draw(path, &rows, &peers),
        None => Ok(()),
    }
}

/// Number of images in the batch on which the algorithms must agree. Few, because nxbp is slow.
const AGREEMENT_ITEMS: usize = 32;

/// Returns the ordinary step, which is the reference, and then each requested algorithm once.
fn algorithms(options: &StepOptions) -> Vec<Algorithm> {
    let mut algorithms = vec![Algorithm::NonPrivate];
    for &algorithm in &options.algorithms {
        if !algorithms.contains(&algorithm) {
            algorithms.push(algorithm);
        }
    }
    algorithms
}

/// Measures alternating workers. The first one runs the ordinary step.
fn measure(workers: &[WorkerOptions], options: &StepOptions) -> Result<Vec<Row>, TrainError> {
    let failed = |worker: &WorkerOptions, reason: String| {
        let path = format!("{} of {}", typed(worker.algorithm), typed(worker.network));
        TrainError::Io { path: path.into(), source: std::io::Error::other(reason) }
    };
    let start = |worker| worker::start(worker).map_err(|reason| failed(worker, reason));
    let mut processes = workers.iter().map(start).collect::<Result<Vec<Process>, _>>()?;
    let amount = |_| Amount::Milliseconds(options.seconds * 1e3);
    let results = take_turns(&mut processes, options.blocks, amount);

    let mut rows = Vec::new();
    let mut ordinary = 0.0;
    for ((worker, process), result) in workers.iter().zip(&processes).zip(results) {
        let block = result.map_err(|reason| failed(worker, reason))?;
        let (ms, ms_min) = median_and_minimum(block.ms);
        if rows.is_empty() {
            ordinary = ms;
        }
        rows.push(Row {
            model: typed(worker.network),
            batch: worker.batch,
            algorithm: typed(worker.algorithm),
            backend: typed(worker.backend),
            threads: worker.threads,
            ms,
            ms_min,
            cpu_ms: block.cpu_ms,
            ratio: ms / ordinary,
            peak_mib: process.peak_mib(),
            device_mib: process.device_mib,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;
    use crate::bench::{BenchOptions, Benchmark};

    fn options(line: &str) -> StepOptions {
        let words = ["bench", "step"].into_iter().chain(line.split_whitespace());
        match BenchOptions::try_parse_from(words).unwrap().benchmark {
            Benchmark::Step(options) => options,
            _ => panic!("not `step`"),
        }
    }

    #[test]
    fn the_ordinary_step_is_measured_first_and_no_algorithm_twice() {
        use Algorithm::{BookKeeping, NonPrivate, Nxbp};
        let algorithms = algorithms(&options("--algorithms nxbp,book-keeping,nxbp"));
        assert_eq!(algorithms, [NonPrivate, Nxbp, BookKeeping]);
    }

    #[test]
    fn zero_blocks_and_empty_batches_are_refused_by_name() {
        for line in ["--blocks 0", "--batch 32,0", "--image-size 0", "--physical-batch-size 0"] {
            let error = run(&options(line)).unwrap_err().to_string();
            assert!(error.contains("must be at least 1, got 0"), "{error}");
        }
        let error = run(&options("--seconds 0")).unwrap_err().to_string();
        assert!(error.contains("--seconds"), "{error}");
    }

    #[test]
    fn stock_layers_are_refused_for_networks_without_them() {
        let error = run(&options("--models mlp,vgg16 --algorithms burn")).unwrap_err().to_string();
        assert!(error.contains("burn is not possible with vgg16"), "{error}");
    }
}
