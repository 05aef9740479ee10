//! A process that only runs steps of one algorithm on one network, on command.

use std::io::{BufRead, Write};

use burn::optim::{AdamConfig, SgdConfig};
use burn::tensor::Device;
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::{BackendName, TrainError, device, typed};
use clap::Args;

use super::contender::{Contender, LEARNING_RATE, NOISE_MULTIPLIER};
use super::process::{Process, Ready, STEPS, Times};
use super::subject::Subject;
use super::usage::own_peak_mib;
use super::{Algorithm, InnerOptimizer, Network, Sizes, cores};

/// Options of `bench worker`.
#[derive(Args, Debug, Clone)]
pub struct WorkerOptions {
    /// Network to train.
    #[arg(long, value_enum)]
    pub network: Network,
    /// Sizes of the network.
    #[command(flatten)]
    pub sizes: Sizes,
    /// Batch size.
    #[arg(long)]
    pub batch: usize,
    /// Algorithm to run.
    #[arg(long, value_enum)]
    pub algorithm: Algorithm,
    /// Optimizer under the algorithm.
    #[arg(long, value_enum)]
    pub optimizer: InnerOptimizer,
    /// Backend to run on.
    #[arg(long, value_enum)]
    pub backend: BackendName,
    /// Number of threads.
    #[arg(long)]
    pub threads: usize,
    /// Maximum number of images that book-keeping has in memory at once.
    #[arg(long)]
    pub physical_batch_size: Option<usize>,
}

/// Starts a worker.
///
/// # Errors
///
/// Returns a sentence if the process cannot be started or ends before it is ready.
pub(super) fn start(options: &WorkerOptions) -> Result<Process, String> {
    let program = std::env::current_exe().unwrap_or_else(|_| "bench".into());
    let mut command = cores::command(program, options.threads);
    command.arg("worker");
    let sizes = options.sizes;
    let given = [
        ("--network", Some(typed(options.network))),
        ("--batch", Some(options.batch.to_string())),
        ("--algorithm", Some(typed(options.algorithm))),
        ("--optimizer", Some(typed(options.optimizer))),
        ("--backend", Some(typed(options.backend))),
        ("--threads", Some(options.threads.to_string())),
        ("--physical-batch-size", options.physical_batch_size.map(|size| size.to_string())),
        ("--image-size", sizes.image_size.map(|size| size.to_string())),
        ("--inputs", sizes.inputs.map(typed)),
        ("--width", sizes.width.map(|size| size.to_string())),
        ("--depth", sizes.depth.map(|size| size.to_string())),
        ("--length", sizes.length.map(|size| size.to_string())),
    ];
    for (name, value) in given {
        command.args(value.into_iter().flat_map(|value| [name.to_string(), value]));
    }
    command.args(sizes.frozen_batch_norm.then_some("--frozen-batch-norm"));
    Process::start(command)
}

/// Runs steps for each command on standard input, until it ends.
///
/// # Errors
///
/// Returns the error of a rejected step.
pub(crate) fn run(options: &WorkerOptions) -> Result<(), TrainError> {
    let base_mib = own_peak_mib();
    let device = device(options.backend)?.autodiff();
    let subject = Subject {
        network: options.network,
        sizes: options.sizes,
        is_stock: options.algorithm == Algorithm::Burn,
    };
    let (model, batch) = subject.init(options.batch, &device);
    let inner = match options.optimizer {
        InnerOptimizer::Adam => AdamConfig::new().init(),
        InnerOptimizer::Sgd => SgdConfig::new().init(),
    };
    let (algorithm, size) = (options.algorithm, options.batch);
    let (lr, noise) = (LEARNING_RATE, NOISE_MULTIPLIER);
    let mut contender = Contender::new(algorithm, model, inner, lr, size, noise, None)?;
    if let (Algorithm::BookKeeping, Some(size)) = (algorithm, options.physical_batch_size) {
        contender = contender.with_physical_batches(size);
    }
    serve(contender, &batch, base_mib, &device)
}

/// Reports that a contender is ready, and runs its steps for each command on standard input, until
/// it ends.
///
/// # Errors
///
/// Returns the error of a rejected step, and [`TrainError::Io`] for another command.
pub(super) fn serve<M: Classifier>(
    mut contender: Contender<M>,
    batch: &Batch<M::Inputs>,
    base_mib: Option<f64>,
    device: &Device,
) -> Result<(), TrainError> {
    say(&Ready { ready: true, base_mib })?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(pipe)?;
        let steps = line.strip_prefix(STEPS).and_then(|rest| rest.trim().parse().ok());
        let Some(steps) = steps else {
            let error = format!("expected `{STEPS} N`, got `{line}`");
            return Err(pipe(std::io::Error::other(error)));
        };
        let ms = contender.timed_steps(batch, steps, || synchronize(device))?;
        say(&Times { ms, device_mib: device_mib(device) })?;
    }
    Ok(())
}

/// Returns the memory that the allocator of a device holds, including pages for later use.
fn device_mib(device: &Device) -> Option<f64> {
    Some(device.memory_pool_usage()?.bytes_reserved as f64 / f64::from(1 << 20))
}

fn say(answer: &impl serde::Serialize) -> Result<(), TrainError> {
    let line = serde_json::to_string(answer).map_err(|error| pipe(error.into()))?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(pipe)
}

fn pipe(source: std::io::Error) -> TrainError {
    TrainError::Io { path: "standard input and output".into(), source }
}

/// Waits until the device has finished.
pub(super) fn synchronize(device: &Device) -> Result<(), TrainError> {
    device
        .sync()
        .map_err(|error| TrainError::option("--backend", format!("{device:?} failed: {error:?}")))
}
