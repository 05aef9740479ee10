//! Burn's `SupervisedTraining`, driven through what can happen to it.
#![cfg(feature = "train")]
#![allow(clippy::unwrap_used)]

mod agreement;
mod budget;
mod checkpoints;
#[path = "../support/device.rs"]
mod chosen_device;
mod devices;
mod dropout;
mod end;
mod fixture;
mod independence;
mod kills;
mod metrics;
mod optimizers;
mod units;
mod users;
mod weight_average;
