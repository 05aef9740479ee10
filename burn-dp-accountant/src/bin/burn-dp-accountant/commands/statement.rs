//! `statement`: the privacy statement of a ledger.

use std::path::PathBuf;

use burn_dp_accountant::PrivacyStatement;
use clap::Args;

use crate::output::Output;
use crate::training::read_ledger;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// The ledger file.
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
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
    let ledger = read_ledger(&arguments.ledger)?;
    let mut statement = PrivacyStatement::from_ledger(&ledger, &arguments.delta)?;
    if let Some(units) = arguments.group {
        statement = statement.with_group(&ledger, units)?;
    }
    Ok(if arguments.json { statement.to_json()? + "\n" } else { statement.to_string() })
}
