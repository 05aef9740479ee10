//! Private training as a whole, from the draw to the updated model.
#![allow(clippy::unwrap_used)]

mod batch_norm;
mod buffers;
mod checkpoints;
#[path = "../support/device.rs"]
mod chosen_device;
#[path = "../support/comparison.rs"]
mod comparison;
mod correlated_noise;
mod devices;
#[cfg(debug_assertions)]
#[path = "../support/ended.rs"]
mod ended;
mod federated;
mod files;
mod fixtures;
mod identity;
mod keys;
mod mini_sets;
mod policies;
mod records;
mod refusals;
mod sampler_support;
mod samplers;
mod sensitivity;
mod sparsification;
mod steps;
#[path = "../support/stored.rs"]
mod stored;
mod types;
mod weight_average;
