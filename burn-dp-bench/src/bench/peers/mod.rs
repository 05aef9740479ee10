//! Steps of this library and of other frameworks, alternating on the same cores.

mod chart;
mod options;
pub(super) mod python;
mod row;
mod system;

use std::path::{Path, PathBuf};

use burn_dp_examples::training::{TrainError, checks, files, typed};

pub use options::PeerOptions;
pub use row::PeerRow;
pub use system::System;

use super::cores;
use super::process::Process;
use super::report::median_and_minimum;
use super::turns::{Amount, take_turns};
use python::Python;
use system::{PeerStep, Round};

/// Measures, prints the figures and their ratios, and writes the files.
///
/// What a framework cannot do is printed to standard error, and the other rows are kept.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option or if nothing could be measured, and
/// [`TrainError::Io`] if a file cannot be written.
pub(super) fn run(options: &PeerOptions) -> Result<(), TrainError> {
    let batches = options.batch.iter().map(|&batch| ("--batch", batch));
    checks::at_least_one(batches.chain([("--blocks", options.blocks)]))?;
    checks::positive([("--seconds", options.seconds)])?;
    for (name, path) in [("--json", &options.json), ("--svg", &options.svg)] {
        path.as_deref().map_or(Ok(()), |path| checks::file(name, path, None))?;
    }
    if let Some(&network) = options.models.iter().find(|network| !network.has_stock_layers()) {
        let reason = format!(
            "{} has no counterpart in the other frameworks; `transformer-block` and \
             `resnet18-cifar` have the sizes that they use",
            typed(network)
        );
        return Err(TrainError::option("--models", reason));
    }
    let threads = cores::threads(&options.threads)?;
    let python = python(options)?;
    let steps = steps(options, python.as_ref());

    let mut rows = Vec::new();
    for &threads in &threads {
        for &network in &options.models {
            let sizes = if options.batch.is_empty() {
                vec![network.batch()]
            } else {
                options.batch.clone()
            };
            for batch in sizes {
                let round = Round { network, batch, threads, backend: options.backend };
                rows.extend(round.measure(&steps, options, python.as_ref()));
                // A run that is interrupted later keeps its measurements.
                if let Some(path) = &options.json {
                    files::write_json(path, &rows)?;
                }
            }
        }
    }
    if rows.is_empty() {
        let reason = "leaves nothing that could be measured; the reasons are printed above";
        return Err(TrainError::option("--systems", reason));
    }
    println!("{}", row::figures(&rows));
    println!("Time of the private step of burn-dp over other steps\n{}", row::ratio_table(&rows));
    match &options.svg {
        Some(path) => chart::draw(path, &rows),
        None => Ok(()),
    }
}

/// Returns the Python of the options, or of a previously installed environment; `None` if there is
/// none or no system needs it.
fn python(options: &PeerOptions) -> Result<Option<Python>, TrainError> {
    let folder = options.venv.clone().unwrap_or_else(environment);
    checks::folder("--venv", &folder)?;
    let interpreter = match &options.python {
        _ if options.install => {
            let base = options.python.as_deref().unwrap_or(Path::new("python3"));
            python::install(base, &folder)?
        }
        _ if !options.systems.iter().any(|system| system.is_python()) => return Ok(None),
        Some(interpreter) => interpreter.clone(),
        None => python::of_environment(&folder),
    };
    if options.python.is_none() && !interpreter.is_file() {
        eprintln!(
            "note: no Python in {}, so that only burn-dp and Burn are measured; add --install to \
             create a virtual environment with the other frameworks, or --python with the path of \
             a Python that has them",
            folder.display()
        );
        return Ok(None);
    }
    Python::new(&interpreter).map(Some)
}

/// Returns the folder of the virtual environment: `peers` in the target folder of cargo.
fn environment() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).unwrap_or(Path::new("target")).join("peers")
}

/// Returns the steps that can be measured, and prints why others cannot.
fn steps(options: &PeerOptions, python: Option<&Python>) -> Vec<PeerStep> {
    let mut steps = Vec::new();
    for system in &options.systems {
        match python {
            None if system.is_python() => continue,
            Some(python) => {
                if let Some(reason) = python.lacks(system.modules()) {
                    eprintln!("note: {} is left out: {reason}", typed(*system));
                    continue;
                }
            }
            None => {}
        }
        for step in system.steps() {
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    steps
}

impl Round {
    fn measure(
        &self,
        steps: &[PeerStep],
        options: &PeerOptions,
        python: Option<&Python>,
    ) -> Vec<PeerRow> {
        let &Self { network, batch, threads, backend } = self;
        let model = typed(network);
        eprintln!("{model} with {batch} examples, {threads} thread(s)");
        let left_out = |step: &PeerStep, reason: String| {
            let name = format!("{}, {}", typed(step.system), step.algorithm);
            eprintln!("note: {name} is left out for {model}: {reason}");
        };
        let (mut started, mut processes): (Vec<&PeerStep>, Vec<Process>) = (Vec::new(), Vec::new());
        for step in steps {
            match step.start(self, python) {
                Ok(process) => {
                    started.push(step);
                    processes.push(process);
                }
                Err(reason) => left_out(step, reason),
            }
        }
        let amount = Amount::Milliseconds(options.seconds * 1e3);
        let results = take_turns(&mut processes, options.blocks, |_| amount);
        let mut rows = Vec::new();
        for ((step, process), result) in started.into_iter().zip(&processes).zip(results) {
            let block = match result {
                Ok(block) => block,
                Err(reason) => {
                    left_out(step, reason);
                    continue;
                }
            };
            let (ms, ms_min) = median_and_minimum(block.ms);
            rows.push(PeerRow {
                model: model.clone(),
                batch,
                threads,
                system: typed(step.system),
                algorithm: step.algorithm.into(),
                backend: typed(backend),
                ms,
                ms_min,
                cpu_ms: block.cpu_ms,
                peak_mib: process.peak_mib(),
                device_mib: process.device_mib,
            });
        }
        rows
    }
}
