//! Trains a model with differential privacy. `cargo xtask train --help` lists the options, and
//! `cargo xtask train shakespeare --help` and `cargo xtask train --clipping batch --help` the
//! options of user-level training and of batch clipping.

use std::process::ExitCode;

use burn_dp_examples::training::Training;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let training = Training::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match training.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
