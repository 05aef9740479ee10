//! Models, data sets and the training program of burn-dp's examples.
//!
//! - [`data`]: drawn digits, MNIST and other data sets from their files, and batches of them.
//! - [`models`]: the networks of the fast-clipping paper, and others.
//! - [`training`]: the program `train`, which `cargo xtask train` starts.
//! - [`plot`]: figures as SVG.
//!
//! The scenarios in the folder `examples` use the data sets; each is a program to read and to copy.

pub mod data;
pub mod models;
pub mod plot;
pub mod training;
