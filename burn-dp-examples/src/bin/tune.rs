//! Searches hyperparameters privately; `cargo xtask tune --help` lists the options.

use std::process::ExitCode;

use burn_dp_examples::training::tune::{TuneOptions, run};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(TuneOptions::parse()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            burn_dp_examples::print_note!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
