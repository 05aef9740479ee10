//! Trains with user-level privacy: `cargo run -p burn-dp-examples --example federated`.

pub mod data;
pub mod model;
pub mod training;

use burn::tensor::Device;

fn main() -> Result<(), burn_dp::DpError> {
    let training = training::run(10, &Device::flex().autodiff())?;
    println!("{}", training.optimizer().statement(&[training::DELTA])?);
    Ok(())
}
