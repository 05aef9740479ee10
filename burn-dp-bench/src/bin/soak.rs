//! Kills runs at random points and resumes them; `cargo xtask soak --help` lists the options.

use std::process::ExitCode;

use burn_dp_bench::soak::{SoakOptions, run};
use clap::Parser;

fn main() -> ExitCode {
    match run(SoakOptions::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
