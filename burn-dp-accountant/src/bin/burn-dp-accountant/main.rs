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

use clap::Parser;

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
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests;
