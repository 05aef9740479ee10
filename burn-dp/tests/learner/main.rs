//! Tests of Burn's `SupervisedTraining` under normal conditions and failures.
#![cfg(feature = "train")]
#![allow(clippy::unwrap_used)]

mod agreement;
mod budget;
mod checkpoints;
#[path = "../support/device.rs"]
mod chosen_device;
#[path = "../support/comparison.rs"]
mod comparison;
mod devices;
mod dropout;
mod end;
#[cfg(debug_assertions)]
#[path = "../support/ended.rs"]
mod ended;
mod fixture;
mod independence;
mod kills;
mod metrics;
mod optimizers;
#[path = "../support/stored.rs"]
mod stored;
mod units;
mod users;
mod weight_average;
