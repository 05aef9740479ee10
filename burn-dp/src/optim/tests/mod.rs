//! Whole steps of the optimizer.

#![allow(clippy::unwrap_used)]

mod asynchronous;
mod augmentation;
mod devices;
mod dropout;
mod empty;
mod fallback;
mod independence;
mod precision;
mod statement;
mod storage;
mod tied;
mod values;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;

use super::PrivacyPlanConfig;
use crate::grads::oracle::numbers;
use crate::model::for_each_parameter;
use crate::nn::{IntoPrivate, Private};
use crate::random::InsecureSeed;

fn device() -> Device {
    Device::flex().autodiff()
}

/// A plan whose first draws have about eight of twelve units.
fn config() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(12, 8.0)
        .with_steps(6)
        .with_noise_multiplier(1e-3)
        .with_insecure_seed(InsecureSeed(3))
}

/// A layer with weights that follow from a number.
fn layer(d_input: usize, d_output: usize, seed: u64) -> Private<Linear> {
    layer_on(&device(), d_input, d_output, seed)
}

fn layer_on(device: &Device, d_input: usize, d_output: usize, seed: u64) -> Private<Linear> {
    let mut layer = LinearConfig::new(d_input, d_output).init(device);
    layer.weight = layer.weight.map(|weight| numbers(weight.dims(), seed, device).require_grad());
    layer.bias = layer
        .bias
        .map(|bias| bias.map(|bias| numbers(bias.dims(), seed + 100, device).require_grad()));
    layer.private()
}

fn values<M: Module>(model: &M) -> Vec<Vec<f32>> {
    let mut values = Vec::new();
    for_each_parameter(model, |_, parameter| {
        values.push(parameter.value.flat().into_data().try_into_vec().unwrap());
    });
    values
}
