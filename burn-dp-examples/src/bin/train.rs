//! Trains a classifier with differential privacy; `cargo xtask train --help` lists the options.

use std::process::ExitCode;

use burn_dp_examples::training::{TrainOptions, run};
use clap::Parser;

fn main() -> ExitCode {
    match run(TrainOptions::parse()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
