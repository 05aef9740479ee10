//! Private training as a whole, from the draw to the updated model.
#![allow(clippy::unwrap_used)]

mod batch_norm;
mod checkpoints;
mod devices;
mod federated;
mod fixtures;
mod mini_sets;
mod policies;
mod records;
mod refusals;
mod sensitivity;
mod sparsification;
mod steps;
mod weight_average;
