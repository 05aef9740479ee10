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

use burn_dp_accountant::AccountantError;
use clap::{CommandFactory, Parser};

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

fn main() -> std::process::ExitCode {
    match Cli::parse().command.run() {
        Ok(text) => {
            // A closed pipe is not an error of the accountant.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", message(&error));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Returns the message of an error, with arguments of the library as the options of the program.
fn message(error: &AccountantError) -> String {
    let AccountantError::InvalidArgument { name, reason } = error else {
        return error.to_string();
    };
    let (mut name, mut reason) = (format!("`{name}`"), reason.clone());
    let program = Cli::command();
    let options = program.get_subcommands().flat_map(|command| command.get_arguments());
    let options = options.filter_map(|argument| argument.get_long());
    // A fixed-size sample is a batch.
    let of_library = options.map(|option| (option.replace('-', "_"), option));
    for (of_library, option) in of_library.chain([("sample_size".into(), "batch-size")]) {
        if name == format!("`{of_library}`") {
            name = format!("--{option}");
        }
        if of_library.contains('_') {
            reason = reason.replace(&of_library, &format!("--{option}"));
        }
    }
    format!("{} {reason}", name.trim_matches('`'))
}

#[cfg(test)]
mod tests;
