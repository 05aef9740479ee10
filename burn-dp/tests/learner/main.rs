//! Tests of Burn's `SupervisedTraining` under normal conditions and failures.
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
