//! The warning of the fallback. The log belongs to the process, so the test has its own file.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use burn_dp::prelude::*;
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;

static WARNINGS: AtomicUsize = AtomicUsize::new(0);

/// Counts the fallback's warnings.
struct Counting;

impl log::Log for Counting {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        if record.level() == log::Level::Warn && text.contains("one backward pass is made for each")
        {
            WARNINGS.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn flush(&self) {}
}

#[test]
fn fallback_warns_once_that_it_is_slow() {
    log::set_logger(&Counting).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let device = Device::flex().autodiff();
    let mut model: Linear = LinearConfig::new(1, 1).init(&device);
    let plan = PrivacyPlanConfig::new(12, 8.0)
        .with_steps(2)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(3));
    let mut optim = plan.init().unwrap().optimizer(SgdConfig::new().init());
    assert_eq!(WARNINGS.load(Ordering::SeqCst), 0);
    for step in 0..2 {
        let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
        let loss = |model: &Linear, unit: usize| {
            let x = Tensor::<2>::full([1, 1], unit as f32, &device);
            model.forward(x).powi_scalar(2).reshape([1])
        };
        optim.backward_each(&model, &draw, loss).unwrap();
        model = optim.step(0.1, model, draw).unwrap();
        assert_eq!(WARNINGS.load(Ordering::SeqCst), 1);
    }
}
