//! Trains a model with differential privacy; `cargo xtask train --help` lists the options.

use std::process::ExitCode;

use burn_dp::on_thread_pool;
use burn_dp_examples::training::{TrainOptions, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = TrainOptions::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match on_thread_pool(|| run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            burn_dp_examples::print_note!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
