//! Audits burn-dp; `cargo xtask audit --help` lists the options.

use std::process::ExitCode;

use burn_dp_bench::audit::{AuditOptions, run};
use clap::Parser;

fn main() -> ExitCode {
    match run(AuditOptions::parse()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
