//! Trains a network with BatchNorm by batch clipping:
//! `cargo run -p burn-dp-examples --example batch-clipping`.

pub mod data;
pub mod model;
pub mod training;

fn main() -> Result<(), training::Error> {
    let (accuracy, optim) = training::run(5)?;
    println!("{}", optim.statement(&[training::DELTA])?);
    println!("test accuracy: {:.2} %", 100.0 * accuracy);
    Ok(())
}
