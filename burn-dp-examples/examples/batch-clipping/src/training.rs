//! The training loop over mini-sets.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig, SamplingScheme};
use burn_dp::updates::{UnitUpdate, public_statistics};
use burn_dp_examples::data::ImageBatcher;

use super::data::Data;
use super::model::Network;

/// Any error of the example.
pub type Error = Box<dyn std::error::Error>;

/// δ; less than 1 / the number of private images.
pub const DELTA: f64 = 1e-5;

/// Number of mini-sets in a step.
const MINI_SETS: usize = 40;

/// Trains for a number of passes over the data, and returns the test accuracy.
///
/// # Errors
///
/// Returns the errors of the plan and of a rejected step.
pub fn run(epochs: usize) -> Result<(f64, DpOptimizer), Error> {
    let device = Device::flex();
    let autodiff = device.clone().autodiff();
    let data = Data::new()?;
    let loss = CrossEntropyLossConfig::new().init();
    let mut model = Network::new(&autodiff);

    // The units of the plan are mini-sets; each step draws exactly MINI_SETS of them.
    let steps = epochs * data.sets.len().div_ceil(MINI_SETS);
    let plan = PrivacyPlanConfig::for_mini_sets(&data.sets, MINI_SETS as f64)
        .with_sampling(SamplingScheme::FixedSize)
        .with_steps(steps as u64)
        .with_noise_multiplier(1.0)
        .with_max_grad_norm(0.2)
        .init()?;
    let sampler = plan.sampler()?;
    let mut optim = plan.optimizer(SgdConfig::new().init());
    for step in 0..steps as u64 {
        let draw = sampler.draw(step)?;
        // Each mini-set gets a copy of the model, whose running statistics are then dropped.
        optim.unit_updates(&model, &draw, |copy: Network, set| {
            let batch = ImageBatcher::MNIST.batch(data.members(set), &autodiff);
            let losses = loss.forward(copy.forward(batch.inputs), batch.targets);
            UnitUpdate::gradient(&copy, losses)
        })?;
        model = optim.step(1.0, model, draw).map_err(DpError::from)?;
    }

    // The statistics that BatchNorm needs for inference come from public images.
    optim.name_public_data(&data.public);
    let model = public_statistics(model, &data.public.batches(50), 100, |model, items| {
        let _ = model.forward(ImageBatcher::MNIST.batch(items.clone(), &autodiff).inputs);
    });
    let batch = ImageBatcher::MNIST.batch(data.test.clone(), &device);
    let predicted = model.valid().forward(batch.inputs).argmax(1).flatten::<1>(0, 1);
    let right = predicted.equal(batch.targets).int().sum().into_scalar::<i64>();
    Ok((right as f64 / data.test.len() as f64, optim))
}
