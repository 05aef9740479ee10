//! Trains a convolutional network on handwritten digits with differential privacy:
//! `cargo run -p burn-dp-examples --example mnist [FOLDER]`.
//!
//! Without a folder the digits are synthetic; a folder holds the four files of MNIST.

pub mod data;
pub mod model;
pub mod training;

use std::path::{Path, PathBuf};

use burn::tensor::Device;

fn main() -> Result<(), training::Error> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let config = training::TrainingConfig::new();
    let accuracy =
        training::run(&config, folder.as_deref(), Path::new("out/mnist"), &Device::flex())?;
    println!("test accuracy: {:.2} %", 100.0 * accuracy);
    Ok(())
}
