//! Searches hyperparameters privately; `cargo xtask tune --help` lists the options.

use std::process::ExitCode;

use burn_dp::on_thread_pool;
use burn_dp_examples::training::tune::{TuneOptions, run};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = TuneOptions::parse();
    match on_thread_pool(|| run(options)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            burn_dp_examples::print_note!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
