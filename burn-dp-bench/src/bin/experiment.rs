//! Runs the experiments of the papers; `cargo xtask experiment --help` lists them.

use std::process::ExitCode;

use burn_dp::on_thread_pool;
use burn_dp_bench::experiments::{ExperimentOptions, run};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = ExperimentOptions::parse();
    match on_thread_pool(|| run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
