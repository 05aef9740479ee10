//! `compare`: which of two trainings has the stronger guarantee.

use std::path::{Path, PathBuf};

use burn_dp_accountant::{AccountantError, PrivacyStatement, Rounded};
use clap::Args;
use serde_json::json;

use crate::output::{Output, json_text, number};
use crate::training::read_ledger;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// A ledger, or a statement as JSON.
    first: PathBuf,
    /// Another ledger or statement.
    second: PathBuf,
    /// Values of δ for ledgers, separated by commas. Statements have their own.
    #[arg(long, value_delimiter = ',', default_value = "1e-5,1e-6,1e-8")]
    delta: Vec<f64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let read = |path: &Path| read(path, &arguments.delta);
    let comparison = read(&arguments.first)?.compare(&read(&arguments.second)?)?;
    if arguments.json {
        let rows = comparison.iter().map(|one| {
            json!({
                "delta": one.delta, "first": number(one.first), "second": number(one.second),
                "stronger": one.stronger,
            })
        });
        return Ok(json_text(&rows.collect()));
    }
    let lines = comparison.iter().map(|one| {
        format!(
            "delta = {:e}: epsilon <= {} and {}; {}\n",
            one.delta,
            Rounded::up(one.first),
            Rounded::up(one.second),
            one.stronger
        )
    });
    Ok(lines.collect())
}

/// Reads a statement, or a ledger and creates its statement.
fn read(path: &Path, deltas: &[f64]) -> Result<PrivacyStatement, AccountantError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AccountantError::Io { path: path.to_path_buf(), source })?;
    match PrivacyStatement::from_json(&text) {
        Ok(statement) => Ok(statement),
        // A statement that cannot be read is not a ledger either.
        Err(error) if text.contains("\"epsilons\"") => Err(error),
        Err(_) => PrivacyStatement::from_ledger(&read_ledger(path)?, deltas),
    }
}
