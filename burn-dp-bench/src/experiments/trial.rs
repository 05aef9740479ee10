//! One private training of a small image classifier, as experiments compare them.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{ModuleOptimizer, SgdConfig};
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp_examples::data::{ImageBatcher, Splits, digits, mnist};
use burn_dp_examples::models::{Classifier, CnnConfig};
use burn_dp_examples::training::{Evaluation, TrainError};

use super::measured::Measured;

/// Momentum of [`momentum_sgd`].
pub(super) const MOMENTUM: f64 = 0.9;

/// Examples in memory at once.
const PHYSICAL_BATCH: usize = 256;

/// A training: everything but the data and the seed.
pub(crate) struct Trial<'a> {
    pub(crate) plan: PrivacyPlanConfig,
    pub(crate) optimizer: ModuleOptimizer,
    /// Learning rate of a step and its clipping threshold.
    pub(crate) lr: &'a dyn Fn(u64, f64) -> f64,
}

/// What a training reached.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outcome {
    /// Share of the test images that are classified correctly.
    pub(crate) accuracy: f64,
    /// Mean cross entropy of the test images.
    pub(crate) loss: f64,
    pub(crate) noise_multiplier: f64,
}

/// Returns the images of an experiment.
pub(crate) fn images(
    measured: &Measured,
    seed: u64,
    [train, test]: [usize; 2],
) -> Result<Splits<ImageBatcher>, TrainError> {
    let splits = match &measured.data_dir {
        Some(folder) => mnist::from_folder(folder)?,
        None => digits::splits(seed, train, test),
    };
    Ok(splits.truncated(train, test))
}

/// Returns SGD with momentum 0.9.
pub(super) fn momentum_sgd() -> ModuleOptimizer {
    let momentum = MomentumConfig::new().with_momentum(MOMENTUM).with_dampening(0.0);
    SgdConfig::new().with_momentum(Some(momentum)).init()
}

impl Trial<'_> {
    /// Trains the CNN and tests it.
    pub(crate) fn run(self, data: &Splits<ImageBatcher>, seed: u64) -> Result<Outcome, TrainError> {
        let device = Device::flex();
        let trained = device.clone().autodiff();
        device.seed(seed);
        let mut model = CnnConfig::new().init(&trained);
        let plan = self.plan.init()?;
        let noise_multiplier = plan.noise_multiplier();
        let batches = plan.batches(data.train.clone(), data.encoder, &trained)?;
        let mut optim = plan.optimizer(self.optimizer);
        let loss = CrossEntropyLossConfig::new().init();
        for (step, batch) in (0..).zip(batches) {
            let batch = batch?;
            optim.backward_batch(&model, &batch, PHYSICAL_BATCH, |model, images| {
                loss.forward(model.forward(images.inputs), images.targets)
            })?;
            let lr = (self.lr)(step, optim.thresholds()?.total_norm());
            model = optim.step(lr, model, batch).map_err(DpError::from)?;
        }
        let tested = Evaluation::of(&model, &data.encoder, &data.test, &device);
        Ok(Outcome { accuracy: tested.accuracy, loss: tested.loss, noise_multiplier })
    }
}
