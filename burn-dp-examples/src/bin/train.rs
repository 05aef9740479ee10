//! Trains a model with differential privacy; `cargo xtask train --help` lists the options.

use std::process::ExitCode;

use burn_dp_examples::training::{TrainOptions, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(TrainOptions::read(std::env::args_os()).unwrap_or_else(|error| error.exit())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            burn_dp_examples::print_note!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
