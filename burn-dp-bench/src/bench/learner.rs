//! The cost of a step in Burn's learner, compared with a custom training loop.

use std::time::Instant;

use burn::data::dataloader::DataLoaderBuilder;
use burn::module::Module;
use burn::optim::AdamConfig;
use burn::tensor::{Device, Tensor};
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{ClassificationOutput, InferenceStep};
use burn_dp::DpError;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig, PublicSchedule, SamplingScheme};
use burn_dp::sampling::PrivateDataLoaderBuilder;
use burn_dp::train::{PrivateTrainStep, PrivateTrainingConfig};
use serde::Serialize;

use super::LearnerOptions;
use super::contender::{LEARNING_RATE, NOISE_MULTIPLIER};
use super::report::median_and_minimum;
use burn_dp_examples::data::{CLASSES, Encoder, ImageBatch, ImageBatcher, ImageDataset, ImageItem};
use burn_dp_examples::models::{Classifier, Cnn, CnnConfig, ModelName};
use burn_dp_examples::training::{TrainError, checks, device, files, typed};

/// The network under both loops.
#[derive(Module, Debug)]
struct Convolutional {
    network: Cnn,
}

impl PrivateTrainStep for Convolutional {
    type Input = ImageBatch;
    type Output = ClassificationOutput;

    fn losses(&self, batch: ImageBatch) -> (Tensor<1>, ClassificationOutput) {
        let output = self.network.forward(batch.inputs);
        let losses = CrossEntropyLossConfig::new().init();
        let losses = losses.forward(output.clone(), batch.targets.clone());
        (losses.clone(), ClassificationOutput::new(losses, output, batch.targets))
    }
}

impl InferenceStep for Convolutional {
    type Input = ImageBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: ImageBatch) -> ClassificationOutput {
        self.losses(batch).1
    }
}

/// Milliseconds of a step in both loops, and their ratio.
#[derive(Debug, Clone, Serialize)]
struct LearnerRow {
    model: String,
    batch: usize,
    custom_loop_ms: f64,
    learner_ms: f64,
    ratio: f64,
}

/// Measures alternating runs of both loops, prints the medians, and writes the figures.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, the error of a rejected step, and
/// [`TrainError::Io`] if the file cannot be written.
pub(super) fn run(options: &LearnerOptions) -> Result<(), TrainError> {
    checks::at_least_one([
        ("--batch", options.batch),
        ("--repetitions", options.repetitions),
        ("--steps", options.steps),
    ])?;
    let device = device(options.backend)?.autodiff();
    let model = Convolutional { network: CnnConfig::new().init(&device) };
    let items = ImageBatcher::MNIST.made_up(4 * options.batch, CLASSES);
    let subject = Subject { items, batch: options.batch, steps: options.steps as u64, device };

    let (mut custom, mut learner) = (Vec::new(), Vec::new());
    for repetition in 0..=options.repetitions {
        let times = [subject.custom_loop(model.clone())?, subject.learner(model.clone())?];
        // The first turn warms up.
        if repetition > 0 {
            custom.push(times[0]);
            learner.push(times[1]);
        }
    }
    let (custom_loop_ms, learner_ms) =
        (median_and_minimum(custom).0, median_and_minimum(learner).0);
    let row = LearnerRow {
        model: typed(ModelName::Cnn),
        batch: options.batch,
        custom_loop_ms,
        learner_ms,
        ratio: learner_ms / custom_loop_ms,
    };
    println!(
        "{} with {} images: {custom_loop_ms:.2} ms per step in a custom loop, {learner_ms:.2} ms \
         in the learner, ratio {:.3}",
        row.model, row.batch, row.ratio
    );
    match &options.json {
        Some(path) => files::write_json(path, &[row]),
        None => Ok(()),
    }
}

struct Subject {
    items: Vec<ImageItem>,
    batch: usize,
    steps: u64,
    device: Device,
}

impl Subject {
    fn plan(&self) -> Result<PrivacyPlan, TrainError> {
        Ok(PrivacyPlanConfig::new(self.items.len(), self.batch as f64)
            .with_sampling(SamplingScheme::FixedSize)
            .with_steps(self.steps)
            .with_noise_multiplier(NOISE_MULTIPLIER)
            .init()?)
    }

    /// Returns the milliseconds of a step in a custom loop.
    fn custom_loop(&self, mut model: Convolutional) -> Result<f64, TrainError> {
        let plan = self.plan()?;
        let dataset = ImageDataset::new(self.items.clone());
        let batches = plan.batches(dataset, ImageBatcher::MNIST, &self.device)?;
        let mut optim = plan.optimizer(AdamConfig::new().init());
        let start = Instant::now();
        for batch in batches {
            let batch = batch?;
            let losses = |model: &Convolutional, images| model.losses(images).0;
            optim.backward_batch(&model, &batch, self.batch, losses)?;
            model = optim.step(LEARNING_RATE, model, batch).map_err(DpError::from)?;
        }
        self.per_step(start)
    }

    fn learner(&self, model: Convolutional) -> Result<f64, TrainError> {
        let private = PrivateTrainingConfig::new(self.batch)
            .with_steps_per_epoch(self.steps)
            .init(self.plan()?)?;
        let train = private.loader(
            PrivateDataLoaderBuilder::new(ImageBatcher::MNIST),
            ImageDataset::new(self.items.clone()),
        )?;
        let valid = DataLoaderBuilder::new(ImageBatcher::MNIST)
            .batch_size(1)
            .build(ImageDataset::new(self.items[..1].to_vec()));
        let folder = tempfile::tempdir()
            .map_err(|error| TrainError::option("--steps", format!("no folder: {error}")))?;
        let training = private
            .supervised(folder.path(), train, valid)
            .with_application_logger(None)
            .renderer(Box::new(CliMetricsRenderer::new()));
        let schedule = PublicSchedule::new(LEARNING_RATE)?;
        let learner = private.model(model)?.learner(AdamConfig::new().init(), schedule);
        let start = Instant::now();
        let result = training.launch(learner);
        let time = self.per_step(start)?;
        match (private.error(), result.error) {
            (None, None) => Ok(time),
            (Some(error), _) => Err(TrainError::option("--steps", error.to_string())),
            (None, Some(error)) => Err(TrainError::option("--steps", error.to_string())),
        }
    }

    fn per_step(&self, start: Instant) -> Result<f64, TrainError> {
        self.device.sync().map_err(|error| {
            TrainError::option("--backend", format!("{:?} failed: {error:?}", self.device))
        })?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / self.steps as f64)
    }
}
