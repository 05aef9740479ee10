//! Trains a model with differential privacy; `cargo xtask train --help` lists the options, and
//! `cargo xtask train shakespeare --help` and `cargo xtask train --clipping batch --help` those of
//! user-level training and of batch clipping.

use std::process::ExitCode;

use burn_dp_examples::training::batch_clipping::{self, BatchOptions};
use burn_dp_examples::training::federated::{self, FederatedOptions};
use burn_dp_examples::training::{TrainError, TrainOptions, run};
use clap::Parser;

fn main() -> ExitCode {
    match train() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn train() -> Result<(), TrainError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if FederatedOptions::are(&arguments) {
        return federated::run(FederatedOptions::parse()).map(|_| ());
    }
    if BatchOptions::are(&arguments) {
        return batch_clipping::run(BatchOptions::parse()).map(|_| ());
    }
    run(TrainOptions::parse()).map(|_| ())
}
