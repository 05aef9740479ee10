//! Measures what privacy costs per step; `cargo xtask bench --help` lists the benchmarks.

use std::process::ExitCode;

use burn_dp::on_thread_pool;
use burn_dp_bench::bench::{BenchOptions, run};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = BenchOptions::parse();
    match on_thread_pool(|| run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
