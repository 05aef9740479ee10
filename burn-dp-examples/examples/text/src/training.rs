//! The training loop: the same as for images.

use burn::config::Config;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp_accountant::Budget;

use super::data::{batcher, reviews};
use super::model::Network;

/// Any error of the example.
pub type Error = Box<dyn std::error::Error>;

/// Configuration of the training.
#[derive(Config, Debug)]
pub struct TrainingConfig {
    /// Number of private reviews.
    #[config(default = 4000)]
    pub reviews: usize,
    /// Upper bound of ε at the end.
    #[config(default = 3.0)]
    pub epsilon: f64,
    /// Probability with which ε may be exceeded; less than 1 / the number of reviews.
    #[config(default = 1e-5)]
    pub delta: f64,
    /// Expected passes over the data.
    #[config(default = 8.0)]
    pub epochs: f64,
    /// Expected size of a logical batch.
    #[config(default = 400.0)]
    pub batch_size: f64,
    /// Maximum number of reviews in memory at once.
    #[config(default = 256)]
    pub physical_batch_size: usize,
    /// Learning rate.
    #[config(default = 0.01)]
    pub lr: f64,
}

/// Trains and returns the test accuracy.
///
/// # Errors
///
/// Returns the errors of the plan and of a rejected step.
pub fn run(config: &TrainingConfig, device: &Device) -> Result<f64, Error> {
    let (train, test) = (reviews(0, config.reviews), reviews(config.reviews, 200));
    let autodiff = device.clone().autodiff();
    let plan = PrivacyPlanConfig::new(train.len(), config.batch_size)
        .with_epochs(config.epochs)
        .with_budget(Budget::new(config.epsilon, config.delta)?)
        .init()?;
    let batches = plan.batches(train, batcher(), &autodiff)?;
    let mut optim = plan.optimizer(AdamConfig::new().init());
    let mut model = Network::new(batcher().vocabulary, &autodiff);
    let loss = CrossEntropyLossConfig::new().init();
    for batch in batches {
        let batch = batch?;
        optim.backward_batch(&model, &batch, config.physical_batch_size, |model, texts| {
            loss.forward(model.forward(texts.inputs), texts.targets)
        })?;
        model = optim.step(config.lr, model, batch).map_err(DpError::from)?;
    }
    println!("{}", optim.statement(&[config.delta])?);

    let batch = batcher().batch(test.items().to_vec(), device);
    let predicted = model.valid().forward(batch.inputs).argmax(1).flatten::<1>(0, 1);
    let right = predicted.equal(batch.targets).int().sum().into_scalar::<i64>();
    Ok(right as f64 / test.len() as f64)
}
