//! One private training run of a small image classifier, for experiments that compare such runs.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::DpError;
use burn_dp::grads::PrivateBackward;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::nn::RandomCrop;
use burn_dp::optim::{PrivacyPlanConfig, WeightAverage};
use burn_dp::sampling::AugmentationBatcher;
use burn_dp_accountant::RunPlan;
use burn_dp_examples::data::{ImageBatcher, ImageItem, Splits, digits, mnist};
use burn_dp_examples::models::{Augmented, Classifier, CnnConfig};
use burn_dp_examples::training::{Evaluation, TrainError};

use super::measured::Measured;

/// Momentum of [`momentum_sgd`].
pub(super) const MOMENTUM: f64 = 0.9;

/// Number of examples in memory at once.
const PHYSICAL_BATCH: usize = 256;

/// A training run: everything but the data and the seed.
pub(crate) struct Trial<'a> {
    plan: PrivacyPlanConfig,
    optimizer: ModuleOptimizer,
    lr: &'a dyn Fn(u64, f64) -> f64,
    copies: Option<(usize, RandomCrop)>,
    average: Option<WeightAverage>,
}

/// The results of a training run.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outcome {
    /// Share of the test images that are classified correctly.
    pub(crate) accuracy: f64,
    /// Test accuracy of the averaged weights, if averaging is on.
    pub(crate) averaged: Option<f64>,
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

/// Returns the images of each seed.
pub(super) fn images_of_seeds(
    measured: &Measured,
    sizes: [usize; 2],
) -> Result<Vec<(u64, Splits<ImageBatcher>)>, TrainError> {
    measured.seeds.iter().map(|&seed| Ok((seed, images(measured, seed, sizes)?))).collect()
}

/// Returns SGD with momentum 0.9.
pub(super) fn momentum_sgd() -> ModuleOptimizer {
    sgd(MOMENTUM)
}

fn sgd(momentum: f64) -> ModuleOptimizer {
    let config = MomentumConfig::new().with_momentum(momentum).with_dampening(0.0);
    SgdConfig::new().with_momentum((momentum > 0.0).then_some(config)).init()
}

/// SGD of a training run of given batch size, noise and length.
#[derive(Clone, Copy, Debug)]
pub(super) struct SgdSettings {
    pub(super) lr: f64,
    pub(super) momentum: f64,
    /// Largest random shift of an image, in pixels.
    pub(super) shift: usize,
}

impl SgdSettings {
    /// Chooses SGD without momentum on the images as they are.
    pub(super) const fn plain(lr: f64) -> Self {
        Self { lr, momentum: 0.0, shift: 0 }
    }
}

/// Measures the test accuracies of the CNN, trained by SGD with the batch size, the noise and the
/// length of `plan`, one for each seed.
pub(super) fn accuracies(
    measured: &mut Measured,
    plan: RunPlan,
    settings: SgdSettings,
    sizes: [usize; 2],
) -> Result<Vec<f64>, TrainError> {
    let mut found = Vec::new();
    for (seed, data) in images_of_seeds(measured, sizes)? {
        let name = format!("{plan:?}, {settings:?}, {sizes:?} images, seed {seed}");
        let run = |device: &Device| accuracy(plan, settings, &data, seed, device);
        found.push(measured.measure(&name, run)?);
    }
    Ok(found)
}

fn accuracy(
    plan: RunPlan,
    SgdSettings { lr, momentum, shift }: SgdSettings,
    data: &Splits<ImageBatcher>,
    seed: u64,
    device: &Device,
) -> Result<f64, TrainError> {
    let config = PrivacyPlanConfig::new(data.train.items().len(), plan.expected_batch_size)
        .with_steps(plan.steps)
        .with_noise_multiplier(plan.noise_multiplier);
    let lr = |_, _| lr;
    let trial = Trial::new(config, sgd(momentum), &lr);
    let trial = match shift {
        0 => trial,
        _ => trial.with_copies(1, RandomCrop::new(shift)?),
    };
    Ok(trial.run(data, seed, device)?.accuracy)
}

impl<'a> Trial<'a> {
    /// Creates a training run.
    ///
    /// # Arguments
    ///
    /// - `lr`: returns the learning rate of a step and its clipping threshold
    pub(crate) fn new(
        plan: PrivacyPlanConfig,
        optimizer: ModuleOptimizer,
        lr: &'a dyn Fn(u64, f64) -> f64,
    ) -> Self {
        Self { plan, optimizer, lr, copies: None, average: None }
    }

    /// Clips the mean gradient of `copies` of each image, which `crop` shifts.
    pub(crate) fn with_copies(self, copies: usize, crop: RandomCrop) -> Self {
        Self { copies: Some((copies, crop)), ..self }
    }

    /// Averages the weights as well.
    pub(crate) fn with_average(self, average: WeightAverage) -> Self {
        Self { average: Some(average), ..self }
    }

    /// Trains the CNN and tests it.
    pub(crate) fn run(
        self,
        data: &Splits<ImageBatcher>,
        seed: u64,
        device: &Device,
    ) -> Result<Outcome, TrainError> {
        let device = device.clone().autodiff();
        device.seed(seed);
        let model = CnnConfig::new().init(&device);
        match self.copies.clone() {
            None => self.train(model, 1, data, &device),
            Some((copies, crop)) => {
                self.train(Augmented { network: model, crop }, copies, data, &device)
            }
        }
    }

    fn train<M: Classifier<Inputs = Tensor<4>>>(
        self,
        mut model: M,
        copies: usize,
        data: &Splits<ImageBatcher>,
        device: &Device,
    ) -> Result<Outcome, TrainError> {
        let plan = self.plan.init()?;
        let copy = |item: &ImageItem, _| item.clone();
        let batcher = AugmentationBatcher::new(data.encoder, copies, copy)?;
        let batches = plan.batches(data.train.clone(), batcher, device)?;
        let mut optim = plan
            .optimizer(self.optimizer)
            .with_backward(PrivateBackward::new().with_group_size(copies));
        if let Some(average) = self.average {
            optim = optim.with_weight_average(average)?;
        }
        let loss = CrossEntropyLossConfig::new().init();
        for (step, batch) in (0..).zip(batches) {
            let batch = batch?;
            optim.backward_batch(
                &model,
                &batch,
                (PHYSICAL_BATCH / copies).max(1),
                |model, images| loss.forward(model.forward(images.inputs), images.targets),
            )?;
            let lr = (self.lr)(step, optim.thresholds()?.total_norm());
            model = optim.step(lr, model, batch).map_err(DpError::from)?;
        }
        let accuracy = |model: &M| {
            Evaluation::of(model, &data.encoder, &data.test, &device.clone().inner()).accuracy
        };
        let averaged = match optim.weight_average() {
            Some(average) => Some(accuracy(&average.averaged(model.clone())?)),
            None => None,
        };
        Ok(Outcome { accuracy: accuracy(&model), averaged })
    }
}
