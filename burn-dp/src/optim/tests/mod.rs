//! Whole steps of the optimizer.

#![allow(clippy::unwrap_used)]

mod augmentation;
mod empty;
mod fallback;
mod independence;
mod tied;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};

use super::PrivacyPlanConfig;
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

#[derive(Default)]
struct Values(Vec<Vec<f32>>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().into_data().try_into_vec().unwrap());
    }
}

fn values<M: Module>(model: &M) -> Vec<Vec<f32>> {
    let mut visitor = Values::default();
    model.visit(&mut visitor);
    visitor.0
}
