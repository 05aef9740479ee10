//! The cost of private fine-tuning: time and memory of a step relative to the ordinary step that
//! trains the same parameters of the same network.
//!
//! The network has the shape of GPT-2, with its output layer tied to its embedding, and random
//! parameters. The optimizer is Adam. The systems of one way take turns on the same cores, and
//! their processes end before the next way begins.

mod model;
mod options;

use std::path::Path;
use std::process::Command;

use burn::optim::AdamConfig;
use burn_dp_examples::training::{TrainError, checks, device, files, typed};
use comfy_table::Table;
use serde::Serialize;

pub use model::{FinetuneWay, Shape};
pub use options::{FinetuneBenchOptions, StepperOptions};

use super::Algorithm;
use super::contender::{Contender, LEARNING_RATE, NOISE_MULTIPLIER};
use super::cores;
use super::peers::python::Python;
use super::process::Process;
use super::report::median_and_minimum;
use super::turns::{Amount, take_turns};
use super::usage::own_peak_mib;
use super::worker;
use model::Gpt;

/// Number of counted steps in a block.
const BLOCK: usize = 2;

/// One system on one way of fine-tuning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FinetuneRow {
    /// What was trained.
    pub way: String,
    /// Name of the system.
    pub system: String,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Number of sequences in a step.
    pub batch: usize,
    /// Number of tokens in a sequence.
    pub sequence: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Width of a position.
    pub width: usize,
    /// Number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// Number of threads.
    pub threads: usize,
    /// Median time of a step, in milliseconds.
    pub ms: f64,
    /// Shortest time of a step, in milliseconds.
    pub ms_min: f64,
    /// CPU time of a step on all threads, in milliseconds; `None` where the system does not report
    /// it.
    pub cpu_ms: Option<f64>,
    /// Tokens in a second, from the median time.
    pub tokens_per_second: f64,
    /// Peak memory of the process in MiB; `None` where the system does not report it.
    pub peak_mib: Option<f64>,
    /// Median time over the median time of the ordinary step of the same framework.
    pub time_ratio: f64,
    /// CPU time over the CPU time of the ordinary step of the same framework. Other load on the
    /// machine changes it less than the time.
    pub cpu_ratio: Option<f64>,
    /// Peak memory over the peak memory of the ordinary step of the same framework.
    pub memory_ratio: Option<f64>,
}

/// A system that is measured. The first one of each framework runs the ordinary step.
#[derive(Debug, Clone, Copy)]
struct System {
    name: &'static str,
    algorithm: &'static str,
    /// The name of the algorithm in the script; `None` for our own steps.
    script: Option<&'static str>,
}

const ORDINARY: &str = "non-private";

const SYSTEMS: [System; 5] = [
    System { name: "burn-dp", algorithm: ORDINARY, script: None },
    System { name: "burn-dp", algorithm: "book-keeping", script: None },
    System { name: "torch", algorithm: ORDINARY, script: Some("nonprivate") },
    System { name: "opacus", algorithm: "materialize", script: Some("materialize") },
    System { name: "opacus", algorithm: "ghost", script: Some("ghost") },
];

/// Measures, prints the table, and writes the figures.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, and [`TrainError::Io`] if a file cannot
/// be written or one of our own processes fails.
pub(super) fn run(options: &FinetuneBenchOptions) -> Result<(), TrainError> {
    let Shape { layers, width, heads, vocabulary, sequence, rank } = options.shape;
    checks::at_least_one([
        ("--batch", options.batch),
        ("--repetitions", options.repetitions),
        ("--layers", layers),
        ("--heads", heads),
        ("--vocabulary", vocabulary),
        ("--sequence", sequence),
        ("--rank", rank),
    ])?;
    if width == 0 || !width.is_multiple_of(heads) {
        let reason = format!("must be a multiple of the {heads} heads, got {width}");
        return Err(TrainError::option("--width", reason));
    }
    options.json.as_deref().map_or(Ok(()), |path| checks::file("--json", path, None))?;
    let given: Vec<usize> = options.threads.into_iter().collect();
    let threads = cores::threads(&given)?.first().copied().unwrap_or(1);
    let python = options.python.as_deref().map(python).transpose()?;
    let mut rows = Vec::new();
    for &way in &options.ways {
        eprintln!("{} with {} sequences, {threads} thread(s)", typed(way), options.batch);
        rows.extend(measure(options, way, threads, python.as_ref())?);
        if let Some(path) = &options.json {
            files::write_json(path, &rows)?;
        }
    }
    println!("{}", table(&rows));
    Ok(())
}

fn python(interpreter: &Path) -> Result<Python, TrainError> {
    let python = Python::new(interpreter)?;
    match python.lacks(&["torch", "opacus"]) {
        Some(reason) => Err(TrainError::option("--python", reason)),
        None => Ok(python),
    }
}

/// Lets the systems of one way take turns.
fn measure(
    options: &FinetuneBenchOptions,
    way: FinetuneWay,
    threads: usize,
    python: Option<&Python>,
) -> Result<Vec<FinetuneRow>, TrainError> {
    let (mut systems, mut processes) = (Vec::new(), Vec::new());
    for system in SYSTEMS {
        let command = match (system.script, python) {
            (None, _) => ours(options, way, system.algorithm != ORDINARY, threads),
            (Some(_), _) if way == FinetuneWay::Qlora => continue,
            (Some(script), Some(python)) => theirs(options, way, script, threads, python),
            (Some(_), None) => continue,
        };
        match Process::start(command) {
            Ok(process) => {
                systems.push(system);
                processes.push(process);
            }
            Err(reason) => failed(system, way, reason)?,
        }
    }
    let amount = |_| Amount::Steps(options.repetitions);
    let results = take_turns(&mut processes, options.repetitions.div_ceil(BLOCK), amount);
    let mut rows: Vec<FinetuneRow> = Vec::new();
    let over = |value: Option<f64>, ordinary: Option<f64>| Some(value? / ordinary?);
    // Time, CPU time and memory of the ordinary step of the framework.
    let mut ordinary = (f64::NAN, None, None);
    for ((system, process), result) in systems.into_iter().zip(&processes).zip(results) {
        if system.algorithm == ORDINARY {
            ordinary = (f64::NAN, None, None);
        }
        let block = match result {
            Ok(block) => block,
            Err(reason) => {
                failed(system, way, reason)?;
                continue;
            }
        };
        let (ms, ms_min) = median_and_minimum(block.ms);
        let peak_mib = process.peak_mib();
        if system.algorithm == ORDINARY {
            ordinary = (ms, block.cpu_ms, peak_mib);
        }
        let Shape { layers, width, vocabulary, sequence, .. } = options.shape;
        rows.push(FinetuneRow {
            way: typed(way),
            system: system.name.into(),
            algorithm: system.algorithm.into(),
            batch: options.batch,
            sequence,
            layers,
            width,
            vocabulary,
            threads,
            ms,
            ms_min,
            cpu_ms: block.cpu_ms,
            tokens_per_second: (options.batch * sequence) as f64 / ms * 1e3,
            peak_mib,
            time_ratio: ms / ordinary.0,
            cpu_ratio: over(block.cpu_ms, ordinary.1),
            memory_ratio: over(peak_mib, ordinary.2),
        });
    }
    Ok(rows)
}

/// Reports that another framework is skipped.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if it is our own step that failed.
fn failed(system: System, way: FinetuneWay, reason: String) -> Result<(), TrainError> {
    let name = format!("{}, {}, {}", system.name, system.algorithm, typed(way));
    if system.script.is_none() {
        return Err(TrainError::Io { path: name.into(), source: std::io::Error::other(reason) });
    }
    eprintln!("note: {name} is left out: {reason}");
    Ok(())
}

/// Returns the options of the shape that both kinds of processes take.
fn shape(options: &FinetuneBenchOptions) -> [String; 14] {
    let Shape { layers, width, heads, vocabulary, sequence, rank } = options.shape;
    let values = [
        ("--layers", layers),
        ("--width", width),
        ("--heads", heads),
        ("--vocabulary", vocabulary),
        ("--sequence", sequence),
        ("--rank", rank),
        ("--batch", options.batch),
    ];
    let words: Vec<String> =
        values.into_iter().flat_map(|(name, value)| [name.into(), value.to_string()]).collect();
    std::array::from_fn(|index| words[index].clone())
}

fn ours(
    options: &FinetuneBenchOptions,
    way: FinetuneWay,
    private: bool,
    threads: usize,
) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "bench".into());
    let mut command = cores::command(program, threads);
    command.args(["finetune-worker", "--way", &typed(way), "--backend", &typed(options.backend)]);
    command.args(shape(options)).args(private.then_some("--private"));
    command.args(options.checkpointing.then_some("--checkpointing"));
    command
}

fn theirs(
    options: &FinetuneBenchOptions,
    way: FinetuneWay,
    script: &str,
    threads: usize,
    python: &Python,
) -> Command {
    let mut command = cores::command(python.interpreter(), threads);
    command.arg(python.script("finetune_torch.py")).args(["--way", &typed(way)]);
    command.args(["--algorithm", script, "--threads", &threads.to_string()]).args(shape(options));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs steps for each command on standard input, until it ends.
///
/// # Errors
///
/// Returns the error of a rejected step.
pub(super) fn serve(options: &StepperOptions) -> Result<(), TrainError> {
    let base_mib = own_peak_mib();
    let device = device(options.backend)?.autodiff();
    let device = if options.checkpointing { device.gradient_checkpointing() } else { device };
    let model = Gpt::new(options.shape, options.way, &device)?;
    let batch = Gpt::batch(options.shape, options.batch, &device);
    let algorithm = if options.private { Algorithm::BookKeeping } else { Algorithm::NonPrivate };
    let (adam, lr, noise) = (AdamConfig::new().init(), LEARNING_RATE, NOISE_MULTIPLIER);
    let contender = Contender::new(algorithm, model, adam, lr, options.batch, noise, None)?;
    worker::serve(contender, &batch, base_mib, &device)
}

fn table(rows: &[FinetuneRow]) -> String {
    let mut table = Table::new();
    table.set_header([
        "way",
        "system",
        "algorithm",
        "ms",
        "CPU ms",
        "tokens/s",
        "peak MiB",
        "time",
        "CPU",
        "memory",
    ]);
    for row in rows {
        table.add_row([
            row.way.clone(),
            row.system.clone(),
            row.algorithm.clone(),
            format!("{:.0}", row.ms),
            row.cpu_ms.map(|ms| format!("{ms:.0}")).unwrap_or_default(),
            format!("{:.0}", row.tokens_per_second),
            row.peak_mib.map(|mib| format!("{mib:.0}")).unwrap_or_default(),
            format!("{:.2}", row.time_ratio),
            row.cpu_ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            row.memory_ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;
    use crate::bench::{BenchOptions, Benchmark};

    fn options(line: &str) -> FinetuneBenchOptions {
        let words = ["bench", "finetune"].into_iter().chain(line.split_whitespace());
        match BenchOptions::try_parse_from(words).unwrap().benchmark {
            Benchmark::Finetune(options) => options,
            _ => panic!("not `finetune`"),
        }
    }

    #[test]
    fn impossible_shapes_are_refused_by_name() {
        for (line, reason) in [
            ("--batch 0", "--batch must be at least 1, got 0"),
            ("--rank 0", "--rank must be at least 1, got 0"),
            ("--width 10 --heads 3", "--width must be a multiple of the 3 heads, got 10"),
        ] {
            let error = run(&options(line)).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn worker_takes_the_options_that_the_benchmark_gives_it() {
        let options = options("--layers 3 --rank 5 --batch 7");
        let command = ours(&options, FinetuneWay::Lora, true, 1);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = words.skip_while(|word| word != "finetune-worker").collect();
        let parsed = BenchOptions::try_parse_from(["bench".into()].into_iter().chain(words));
        let Benchmark::FinetuneWorker(worker) = parsed.unwrap().benchmark else { panic!() };
        assert_eq!((worker.way, worker.private, worker.batch), (FinetuneWay::Lora, true, 7));
        assert_eq!(worker.shape, options.shape);
    }
}
