//! `statement`: the privacy statement of a run, or of several runs on the same data.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use burn_dp_accountant::{AccountantError, PrivacyStatement};
use clap::Args;

use crate::output::{Output, invalid};
use crate::training::read_ledger;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// The ledger of a run. Repeat the option for several runs on the same data, of which the best
    /// one is published: all of them count.
    #[arg(long, value_name = "FILE", required = true)]
    ledger: Vec<PathBuf>,
    /// State this ledger alone, although its folder has ledgers of other runs: they used other
    /// data, or nobody saw their results.
    #[arg(long)]
    single_run: bool,
    /// Values of δ, separated by commas, each below 1 / number of units [default: each of 1e-5,
    /// 1e-6 and 1e-8 that is].
    #[arg(long, value_delimiter = ',')]
    delta: Vec<f64>,
    /// Also state the guarantee for this many units at once.
    #[arg(long, value_name = "K")]
    group: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let paths = &arguments.ledger;
    let ledgers = paths.iter().map(|path| read_ledger(path)).collect::<Result<Vec<_>, _>>()?;
    if !arguments.single_run {
        paths.iter().try_for_each(|path| check_folder(path, paths))?;
    }
    for (path, ledger) in paths.iter().zip(&ledgers) {
        let header = ledger.header();
        if let (Some(size), None) = (header.facts.get("dataset_size"), header.units()) {
            let reason = format!(
                "{} has the dataset_size `{size}`, which is not a number of units, so that delta \
                 cannot be compared with it",
                path.display()
            );
            return Err(invalid("--ledger", reason));
        }
    }
    let units = ledgers.iter().filter_map(|ledger| ledger.header().units()).reduce(f64::max);
    let mut statement = PrivacyStatement::from_runs(&ledgers, &deltas(&arguments.delta, units)?)?;
    if let Some(units) = arguments.group {
        let [ledger] = &ledgers[..] else {
            return Err(invalid("--group", "needs exactly one --ledger"));
        };
        statement = statement.with_group(ledger, units)?;
    }
    Ok(if arguments.json { statement.to_json()? + "\n" } else { statement.to_string() })
}

/// Values of δ that are usual for small, large and very large data sets.
const USUAL: [f64; 3] = [1e-5, 1e-6, 1e-8];

/// Returns the values of δ: `given`, or the usual ones that do not allow publishing a unit
/// outright.
fn deltas(given: &[f64], units: Option<f64>) -> Result<Vec<f64>, AccountantError> {
    let largest = units.map_or(1.0, |units| 1.0 / units);
    if let Some(delta) = given.iter().find(|&&delta| units.is_some() && delta >= largest) {
        return Err(invalid(
            "--delta",
            format!(
                "must be below one over the number of units = {largest:e}, got {delta:e}: such a \
                 delta would allow publishing a unit outright"
            ),
        ));
    }
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let usual: Vec<f64> = USUAL.into_iter().filter(|&delta| delta < largest).collect();
    Ok(if usual.is_empty() { vec![largest / 10.0] } else { usual })
}

/// Returns an error if the folder of `path` has ledgers of other runs that are not `given`: the
/// last run is in `ledger.json`, and earlier ones in `ledger-1.json`, `ledger-2.json`, and so on.
fn check_folder(path: &Path, given: &[PathBuf]) -> Result<(), AccountantError> {
    let name = path.file_name().and_then(OsStr::to_str);
    if name.and_then(number_of_run).is_none() {
        return Ok(());
    }
    let mut runs = runs_beside(path).map_err(|error| {
        let reason = format!(
            "is in a folder that cannot be listed ({error}), and could be one of several runs; \
             make it readable, or give --single-run"
        );
        invalid("--ledger", reason)
    })?;
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let given: Vec<PathBuf> = given.iter().map(real).collect();
    if runs.iter().all(|(_, run)| given.contains(&real(run))) {
        return Ok(());
    }
    runs.sort();
    let all = runs.iter().map(|(_, run)| format!(" --ledger {}", run.display()));
    Err(invalid(
        "--ledger",
        format!(
            "is one of {} runs in its folder, got {}: the best of several runs must not be \
             reported as one. Count all of them ({}), or give --single-run if the others used \
             other data or nobody saw their results",
            runs.len(),
            path.display(),
            all.collect::<String>().trim_start(),
        ),
    ))
}

/// Returns the numbers and paths of the ledgers of runs in the folder of `path`.
fn runs_beside(path: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let name = entry?.file_name();
        if let Some(number) = name.to_str().and_then(number_of_run) {
            runs.push((number, path.with_file_name(name)));
        }
    }
    Ok(runs)
}

/// Returns the number of the run that a file in a folder of runs belongs to, 0 for the last one; or
/// `None` if the file is not the ledger of a run.
fn number_of_run(name: &str) -> Option<u64> {
    match name.strip_prefix("ledger")?.strip_suffix(".json")? {
        "" => Some(0),
        number => number.strip_prefix('-')?.parse().ok(),
    }
}
