//! The training loop. Frozen parameters cost no per-example work.

use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig};
use burn_dp::{DpError, losses::CrossEntropyLossConfig};
use burn_dp_accountant::Budget;
use burn_dp_examples::data::{ImageBatcher, digits};

use super::model::Network;

/// δ; less than 1 / the number of digits.
pub const DELTA: f64 = 1e-5;

/// Trains the head for a number of passes over the data.
///
/// # Errors
///
/// Returns the errors of the plan and of a rejected step.
pub fn run(epochs: f64) -> Result<(Network, DpOptimizer), DpError> {
    let device = Device::flex().autodiff();
    let mut model = Network::new(&device);
    let loss = CrossEntropyLossConfig::new().init();
    let images = digits::splits(0, 2_000, 0).train;

    let budget = Budget::new(1.0, DELTA)?;
    let plan = PrivacyPlanConfig::new(2_000, 100.0).with_epochs(epochs).with_budget(budget);
    let plan = plan.init()?;
    let batches = plan.batches(images, ImageBatcher::MNIST, &device)?;
    let mut optim = plan.optimizer(AdamConfig::new().init());
    for batch in batches {
        let batch = batch?;
        optim.backward_batch(&model, &batch, 128, |model, images| {
            loss.forward(model.forward(images.inputs), images.targets)
        })?;
        model = optim.step(0.01, model, batch)?;
    }
    Ok((model, optim))
}
