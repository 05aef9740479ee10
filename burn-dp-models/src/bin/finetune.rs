//! Fine-tunes a pre-trained model with differential privacy. `cargo xtask finetune --help` lists
//! the commands.

use std::process::ExitCode;

use burn_dp::on_thread_pool;
use burn_dp_models::finetune::{Finetune, run};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = Finetune::parse();
    match on_thread_pool(|| run(options)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
