//! Training that continues after a crash: `cargo run -p burn-dp-examples --example resume`. Stop it
//! with Ctrl-C or `kill -9`, and start it again.

pub mod model;
pub mod training;

use std::path::Path;

fn main() -> Result<(), burn_dp::DpError> {
    let mut optim = training::run(Path::new("out/resume"), None)?;
    optim.forget_key()?; // out/resume.key: the run is over
    println!("{}", optim.statement(&[training::DELTA])?);
    Ok(())
}
