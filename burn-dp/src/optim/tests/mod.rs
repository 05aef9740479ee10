//! Whole steps of the optimizer.

#![allow(clippy::unwrap_used)]

mod augmentation;
mod empty;
mod fallback;
mod independence;
mod tied;

use burn::module::Module;
use burn::tensor::Device;

use super::PrivacyPlanConfig;
use crate::model::for_each_parameter;
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

fn values<M: Module>(model: &M) -> Vec<Vec<f32>> {
    let mut values = Vec::new();
    for_each_parameter(model, |_, parameter| {
        values.push(parameter.value.flat().into_data().try_into_vec().unwrap());
    });
    values
}
