//! Trains a classifier of short texts with differential privacy:
//! `cargo run -p burn-dp-examples --example text`.

pub mod data;
pub mod model;
pub mod training;

use burn::tensor::Device;

fn main() -> Result<(), training::Error> {
    let accuracy = training::run(&training::TrainingConfig::new(), &Device::flex())?;
    println!("test accuracy: {:.2} %", 100.0 * accuracy);
    Ok(())
}
