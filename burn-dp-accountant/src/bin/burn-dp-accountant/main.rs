//! The accountant as a program: ε, δ, calibration, trade-off curves, TAN plans, correlated noise
//! strategies, audits, and statements.

mod commands;
mod correlated;
mod output;
mod plot;
mod private_search;
mod sampler;
mod samplers;
mod strategy_options;
mod training;

use std::io::Write;

use burn_dp_accountant::AccountantError;
use clap::{CommandFactory, FromArgMatches, Parser};

/// Privacy accounting for differentially private training.
///
/// Every printed ε is an upper bound, rounded up, unless its label says otherwise. Numbers are
/// rounded for people; `--json` prints them in full.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// The variable that names the program in usage lines if another program starts it.
const PROGRAM: &str = "BURN_DP_PROGRAM";

/// Returns the command of a program with this name, or with its own name.
fn named(program: Option<String>) -> clap::Command {
    let program = program.filter(|name| !name.is_empty());
    Cli::command().bin_name(program.unwrap_or("burn-dp-accountant".into()))
}

fn main() -> std::process::ExitCode {
    let matches = named(std::env::var(PROGRAM).ok()).get_matches();
    let program = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match program.command.run() {
        Ok(text) => {
            let mut output = std::io::stdout();
            let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
            match written {
                // A closed pipe is not an error of the accountant.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    let _ = writeln!(std::io::stderr(), "error: standard output: {error}");
                    std::process::ExitCode::FAILURE
                }
                _ => std::process::ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", message(&error));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Returns the message of an error, with arguments of the library as the options of the program.
fn message(error: &AccountantError) -> String {
    let AccountantError::InvalidArgument { name, reason } = error else {
        return error.to_string();
    };
    let program = Cli::command();
    let option = |word: &str| {
        let option = match word {
            // A fixed-size sample is a batch.
            "sample_size" => "batch-size".into(),
            "units" => "group".into(),
            "examples" => "examples-per-unit".into(),
            "mean" => "mean-runs".into(),
            "false_positive_rate" => "fpr".into(),
            "times" => "participations".into(),
            _ => word.replace('_', "-"),
        };
        let mut arguments = program.get_subcommands().flat_map(|command| command.get_arguments());
        let is_option = arguments.any(|argument| argument.get_long() == Some(&option));
        is_option.then(|| format!("--{option}"))
    };
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    let words = reason.split_inclusive(is_end).map(|piece| {
        let word = piece.trim_end_matches(is_end);
        // Without an underscore, it is a word of the sentence.
        let named = option(word).filter(|_| word.contains('_'));
        named.map_or(piece.to_string(), |option| piece.replacen(word, &option, 1))
    });
    let reason: String = words.collect();
    format!("{} {reason}", option(name).unwrap_or(name.to_string()))
}

#[cfg(test)]
mod tests;
