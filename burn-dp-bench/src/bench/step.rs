//! The time of one training step, compared between algorithms.

use std::time::Instant;

use burn::optim::AdamConfig;
use burn::tensor::Device;

use super::contender::{Contender, LEARNING_RATE, NOISE_MULTIPLIER};
use super::memory;
use super::report::{self, Row, median_and_minimum};
use super::subject::{Measure, Subject};
use super::{Algorithm, StepOptions, agreement, chart, peers};
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::{TrainError, checks, device, files, typed};

/// Steps before the first measured one.
const WARM_UP: usize = 2;

/// Measures, prints the table, and writes the figures and the picture.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, for a line of other frameworks that is
/// no measurement, or if the private algorithms disagree; and [`TrainError::Io`] if a file cannot
/// be read or written.
pub(super) fn run(options: &StepOptions) -> Result<(), TrainError> {
    let batches = options.batch.iter().map(|&batch| ("--batch", batch));
    let others = [("--repetitions", options.repetitions), ("--image-size", options.image_size)];
    checks::at_least_one(batches.chain(others))?;
    for (name, path) in [("--json", &options.json), ("--svg", &options.svg)] {
        path.as_deref().map_or(Ok(()), |path| checks::file(name, path, None))?;
    }
    if options.svg.is_some() && algorithms(options).len() == 1 {
        let reason = "needs a private algorithm to draw; give --algorithms book-keeping too";
        return Err(TrainError::option("--svg", reason));
    }
    let peers = options.peers.as_deref().map_or(Ok(Vec::new()), peers::read)?;
    let device = device(options.backend)?.autodiff();
    let mut rows = Vec::new();
    for &model in &options.models {
        for &batch_size in &options.batch {
            eprintln!("{} with {batch_size} images", typed(model));
            let subject = Subject { model, image_size: options.image_size };
            let comparison = Comparison { subject, batch_size, options, device: &device };
            rows.extend(subject.measure(batch_size, &device, comparison)?);
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

/// Images of a batch on which the algorithms must agree. Few, because nxbp is slow.
const AGREEMENT_ITEMS: usize = 32;

/// All algorithms on one network and batch size.
struct Comparison<'a> {
    subject: Subject,
    batch_size: usize,
    options: &'a StepOptions,
    device: &'a Device,
}

impl Measure for Comparison<'_> {
    type Output = Result<Vec<Row>, TrainError>;

    fn measure<M: Classifier>(self, model: M, batch: Batch<M::Inputs>) -> Self::Output {
        let Self { subject, batch_size, options, device } = self;
        let what = format!("{} with {batch_size} images", typed(subject.model));
        agreement::check(&model, &batch.first(AGREEMENT_ITEMS.min(batch_size)), &what)?;

        let contender = |algorithm: Algorithm| {
            let adam = AdamConfig::new().init();
            let (lr, noise) = (LEARNING_RATE, NOISE_MULTIPLIER);
            Contender::new(algorithm, model.clone(), adam, lr, batch_size, noise, None)
        };
        let contenders =
            algorithms(options).into_iter().map(contender).collect::<Result<_, _>>()?;
        drop(model);
        let times = take_turns(contenders, &batch, options.repetitions, device)?;

        let mut rows = Vec::new();
        let mut ordinary = 0.0;
        for (algorithm, times) in times {
            let (ms, ms_min) = median_and_minimum(times);
            if algorithm == Algorithm::NonPrivate {
                ordinary = ms;
            }
            rows.push(Row {
                model: typed(subject.model),
                batch: batch_size,
                algorithm: typed(algorithm),
                backend: typed(options.backend),
                ms,
                ms_min,
                ratio: ms / ordinary,
                peak_mib: memory::peak_mib(subject, batch_size, algorithm, options.backend)?,
            });
        }
        Ok(rows)
    }
}

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

/// Returns the milliseconds of each contender's steps. The contenders take turns, step by step.
fn take_turns<M: Classifier>(
    mut contenders: Vec<Contender<M>>,
    batch: &Batch<M::Inputs>,
    repetitions: usize,
    device: &Device,
) -> Result<Vec<(Algorithm, Vec<f64>)>, TrainError> {
    let mut times: Vec<_> = contenders.iter().map(|c| (c.algorithm(), Vec::new())).collect();
    for round in 0..WARM_UP + repetitions {
        for (contender, (algorithm, times)) in contenders.iter_mut().zip(&mut times) {
            if round >= WARM_UP + algorithm.repetitions(repetitions) {
                continue;
            }
            synchronize(device)?;
            let start = Instant::now();
            contender.step(batch)?;
            synchronize(device)?;
            if round >= WARM_UP {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    Ok(times)
}

/// Waits until the device has finished.
fn synchronize(device: &Device) -> Result<(), TrainError> {
    device
        .sync()
        .map_err(|error| TrainError::option("--backend", format!("{device:?} failed: {error:?}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataloader::batcher::Batcher;
    use clap::Parser;

    use super::*;
    use crate::bench::{BenchOptions, Benchmark};
    use burn_dp_examples::data::{Encoder, ImageBatcher};

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
    fn every_algorithm_is_timed_as_often_as_asked_and_nxbp_a_fifth_of_it() {
        let device = Device::flex().autodiff();
        let batch = ImageBatcher::MNIST.batch(ImageBatcher::MNIST.made_up(2, 10), &device);
        let model = burn_dp_examples::models::MlpConfig::new().init(&device);
        let contender = |algorithm| {
            let adam = AdamConfig::new().init();
            Contender::new(algorithm, model.clone(), adam, 1e-3, 2, 1.0, None).unwrap()
        };
        let contenders = algorithms(&options("")).into_iter().map(contender).collect();
        let times = take_turns(contenders, &batch, 6, &device).unwrap();
        let counts: Vec<_> = times.iter().map(|(_, times)| times.len()).collect();
        assert_eq!(counts, [6, 6, 6, 6, 2]);
        assert!(times.iter().flat_map(|(_, times)| times).all(|&ms| ms > 0.0));
    }

    #[test]
    fn zero_repetitions_and_empty_batches_are_refused_by_name() {
        for line in ["--repetitions 0", "--batch 32,0", "--image-size 0"] {
            let error = run(&options(line)).unwrap_err().to_string();
            assert!(error.contains("must be at least 1, got 0"), "{error}");
        }
    }
}
