//! The training loop.

use std::path::Path;

use burn::config::Config;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::optim::SgdConfig;
use burn::optim::momentum::MomentumConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp_accountant::Budget;
use burn_dp_examples::data::ImageDataset;

use super::data::{MnistBatcher, splits};
use super::model::Network;

/// Any error of the example.
pub type Error = Box<dyn std::error::Error>;

/// Configuration of the training.
#[derive(Config, Debug)]
pub struct TrainingConfig {
    /// Upper bound of ε at the end.
    #[config(default = 3.0)]
    pub epsilon: f64,
    /// Probability with which ε may be exceeded; less than 1 / the number of examples.
    #[config(default = 1e-5)]
    pub delta: f64,
    /// Expected passes over the data.
    #[config(default = 5.0)]
    pub epochs: f64,
    /// Expected size of a logical batch, which one noisy step averages over.
    #[config(default = 200.0)]
    pub batch_size: f64,
    /// Maximum number of examples in memory at once. It only changes speed.
    #[config(default = 64)]
    pub physical_batch_size: usize,
    /// Clipping threshold of each example's gradient.
    #[config(default = 0.5)]
    pub max_grad_norm: f64,
    /// Learning rate.
    #[config(default = 0.5)]
    pub lr: f64,
}

/// Trains, writes the model and the privacy statement, and returns the test accuracy.
///
/// # Errors
///
/// Returns the errors of the data, of the plan, of a rejected step, and of writing.
pub fn run(
    config: &TrainingConfig,
    folder: Option<&Path>,
    artifacts: &Path,
    device: &Device,
) -> Result<f64, Error> {
    let (train, test) = splits(folder)?;
    let autodiff = device.clone().autodiff();

    // The plan computes the noise that ends at the budget; sampler, clipping and noise come from
    // it.
    let plan = PrivacyPlanConfig::new(train.len(), config.batch_size)
        .with_epochs(config.epochs)
        .with_budget(Budget::new(config.epsilon, config.delta)?)
        .with_max_grad_norm(config.max_grad_norm)
        .init()?;
    let batches = plan.batches(train, MnistBatcher, &autodiff)?;
    let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
    let mut optim = plan.optimizer(SgdConfig::new().with_momentum(Some(momentum)).init());
    let mut model = Network::new(&autodiff);
    let loss = CrossEntropyLossConfig::new().init(); // one loss for each example, no mean

    for batch in batches {
        let batch = batch?;
        // Clips the gradient of each digit, and adds up.
        optim.backward_batch(&model, &batch, config.physical_batch_size, |model, digits| {
            loss.forward(model.forward(digits.images), digits.targets)
        })?;
        // Noise, ledger, and the step of the optimizer.
        model = optim.step(config.lr, model, batch).map_err(DpError::from)?;
    }

    std::fs::create_dir_all(artifacts)?;
    let statement = optim.statement(&[config.delta])?;
    std::fs::write(artifacts.join("privacy.txt"), statement.to_string())?;
    println!("{statement}");
    let accuracy = accuracy(&model, &test, device);
    model.save_file(artifacts.join("model"))?;
    Ok(accuracy)
}

/// Returns the share of the digits that are classified correctly.
fn accuracy(model: &Network, test: &ImageDataset, device: &Device) -> f64 {
    let batch = MnistBatcher.batch(test.items().to_vec(), device);
    let predicted = model.valid().forward(batch.images).argmax(1).flatten::<1>(0, 1);
    let right = predicted.equal(batch.targets).int().sum().into_scalar::<i64>();
    right as f64 / test.len() as f64
}
