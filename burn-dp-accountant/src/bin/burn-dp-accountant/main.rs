//! The accountant as a command: ε, δ, calibration, trade-off curves, TAN plans and statements.

mod arguments;
mod commands;
mod plot;

use clap::Parser;

fn main() -> std::process::ExitCode {
    match commands::run(&arguments::Cli::parse().command) {
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
