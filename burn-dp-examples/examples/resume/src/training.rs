//! The training loop with checkpoints.
//!
//! Every release is on disk before its noise is drawn. The steps after the last checkpoint are
//! repeated bit for bit, and cost nothing a second time.

use std::path::Path;

use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig};
use burn_dp::{DpError, losses::CrossEntropyLossConfig};
use burn_dp_accountant::Budget;
use burn_dp_examples::data::{ImageBatcher, digits};

use super::model::Network;

/// δ; less than 1 / the number of digits.
pub const DELTA: f64 = 1e-5;

/// Steps between two checkpoints.
const SAVE_EVERY: u64 = 50;

/// Trains from the last checkpoint in the folder, or from the beginning.
///
/// # Arguments
///
/// - `stop_before`: step before which this process stops, as if it had been killed
///
/// # Errors
///
/// Returns the errors of the plan, of a checkpoint, and of a rejected step.
pub fn run(folder: &Path, stop_before: Option<u64>) -> Result<DpOptimizer, DpError> {
    let device = Device::flex().autodiff();
    let images = digits::splits(0, 2_000, 0).train;
    let loss = CrossEntropyLossConfig::new().init();
    let checkpointer = Checkpointer::new(folder);

    // The same plan, optimizer and model in every process; the key of the run is in the checkpoint.
    let plan = PrivacyPlanConfig::new(2_000, 100.0)
        .with_epochs(20.0)
        .with_budget(Budget::new(3.0, DELTA)?)
        .init()?;
    let (inner, mut model) = (AdamConfig::new().init(), Network::new(&device));
    let mut optim = match checkpointer.latest()? {
        Some(checkpoint) => {
            let (optim, restored) = checkpoint.restore(plan, inner, model)?;
            let (next, released) = (optim.next_step(), optim.releases());
            println!("continues with step {next}; {released} steps were released");
            model = restored;
            optim
        }
        None => {
            let optim = plan.optimizer(inner);
            checkpointer.save(&model, &optim)?; // from here on every release is recorded
            optim
        }
    };

    let batches = optim.plan().batches(images, ImageBatcher::MNIST, &device)?;
    for batch in batches.skip_to(optim.next_step())? {
        if stop_before.is_some_and(|step| optim.next_step() >= step) {
            break;
        }
        let batch = batch?;
        optim.backward_batch(&model, &batch, 128, |model, images| {
            loss.forward(model.forward(images.inputs), images.targets)
        })?;
        model = optim.step(0.01, model, batch)?;
        if optim.next_step() % SAVE_EVERY == 0 {
            checkpointer.save(&model, &optim)?;
            println!("step {}", optim.next_step());
        }
    }
    Ok(optim)
}
