//! `statement`: the privacy statement of a run, or of several runs on the same data.

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
    /// The ledgers of other runs in the same folder are of other data, or nobody saw their results.
    #[arg(long)]
    single_run: bool,
    /// Values of δ, separated by commas, each below 1 / number of units [default: 1e-5, 1e-6
    /// and 1e-8, as far as they are].
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
    if !arguments.single_run {
        paths.iter().try_for_each(|path| check_folder(path, paths))?;
    }
    let ledgers = paths.iter().map(|path| read_ledger(path)).collect::<Result<Vec<_>, _>>()?;
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

/// Returns an error if a run was repeated in the folder of `path`, which keeps the ledgers of
/// earlier runs as `ledger-1.json`, `ledger-2.json`, and so on, and those are not `given`.
fn check_folder(path: &Path, given: &[PathBuf]) -> Result<(), AccountantError> {
    let numbered = (1..=9_999).map(|number| path.with_file_name(format!("ledger-{number}.json")));
    let kept: Vec<PathBuf> = numbered.take_while(|path| path.exists()).collect();
    let of_a_run = |name: &str| path.file_name().is_some_and(|found| found == name);
    if !of_a_run("ledger.json") || kept.iter().all(|path| given.contains(path)) {
        return Ok(());
    }
    let all = kept.iter().map(|path| format!(" --ledger {}", path.display())).collect::<String>();
    Err(invalid(
        "--ledger",
        format!(
            "is one of {} runs in its folder, got {}: the best of several runs must not be \
             reported as one. Count all of them (--ledger {}{all}), or give --single-run if the \
             others used other data or nobody saw their results",
            kept.len() + 1,
            path.display(),
            path.display(),
        ),
    ))
}
