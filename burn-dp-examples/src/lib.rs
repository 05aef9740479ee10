//! Models, data sets and experiments of the papers behind burn-dp.
//!
//! - [`mod@bench`]: what privacy costs per step.
//! - [`experiments`]: what the papers measured, measured again.
//! - [`data`]: the embedded data set of drawn digits, MNIST from its files, and batches of images.
//! - [`models`]: the networks of the fast-clipping paper.
//! - [`training`]: the training program.
//!
//! The programs are `train`, `bench` and `experiment`, started by `cargo xtask` and the name.

pub mod bench;
pub mod data;
pub mod experiments;
pub mod models;
pub mod training;
