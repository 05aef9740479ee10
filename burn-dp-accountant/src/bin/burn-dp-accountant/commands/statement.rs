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
    /// Values of δ, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1e-5,1e-6,1e-8")]
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
    let mut statement = PrivacyStatement::from_runs(&ledgers, &arguments.delta)?;
    if let Some(units) = arguments.group {
        let [ledger] = &ledgers[..] else {
            return Err(invalid("--group", "needs exactly one --ledger"));
        };
        statement = statement.with_group(ledger, units)?;
    }
    Ok(if arguments.json { statement.to_json()? + "\n" } else { statement.to_string() })
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
