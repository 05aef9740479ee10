//! Models, data sets and experiments of the papers behind burn-dp.
//!
//! - [`bench`]: what privacy costs per step.
//! - [`data`]: the embedded data set of drawn digits, MNIST from its files, and batches of images.
//! - [`models`]: the networks of the fast-clipping paper.
//! - [`training`]: the training program.
//!
//! The programs are `train` and `bench`, started by `cargo xtask train` and `cargo xtask bench`.

pub mod bench;
pub mod data;
pub mod models;
pub mod training;
