//! A run from options to files.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::Device;

use super::figures::Outcome;
use super::options::{DatasetName, ModelName, OptimizerName, TrainOptions};
use super::progress::{Progress, Step};
use super::{Evaluation, RunFigures, Settings, TrainError, device, files, ordinary};
use crate::data::{Splits, digits, mnist};
use crate::models::{Classifier, CnnConfig, MlpConfig};

/// Name of the file with the trained parameters, a Burn record.
pub const MODEL_FILE: &str = "model.bpk";

/// Trains as the options say, and writes the model, the privacy statement and the figures.
///
/// # Errors
///
/// When an option is impossible or the data cannot be read, before anything is written; and when the
/// training or the writing fails.
pub fn run(options: TrainOptions) -> Result<RunFigures, TrainError> {
    let data_dir = std::env::var_os("BURN_DP_DATA").map(Into::into);
    let settings = Settings::new(options, data_dir)?;
    let device = device(settings.backend)?;
    let data = load(&settings)?;
    settings.fit(data.train.items().len())?;
    if settings.privacy.is_some() {
        let reason = "must be given: this version has no private training yet";
        return Err(TrainError::option("--non-private", reason));
    }
    // Of the initial weights only: noise and sampling have generators of their own.
    device.seed(settings.seed);
    let trained = device.clone().autodiff();
    match settings.model {
        ModelName::Mlp => train(MlpConfig::new().init(&trained), data, &settings, &device),
        ModelName::Cnn => train(CnnConfig::new().init(&trained), data, &settings, &device),
    }
}

fn load(settings: &Settings) -> Result<Splits, TrainError> {
    let cut = |size: Option<usize>| size.unwrap_or(usize::MAX);
    let splits = match (settings.dataset, &settings.data_dir) {
        (DatasetName::Digits, _) => {
            return Ok(digits::splits(
                settings.seed,
                settings.train_size.unwrap_or(digits::TRAIN_ITEMS),
                settings.test_size.unwrap_or(digits::TEST_ITEMS),
            ));
        }
        (DatasetName::Mnist, Some(folder)) => mnist::from_folder(folder)?,
        (DatasetName::Mnist, None) => mnist::downloaded()?,
    };
    Ok(Splits {
        name: splits.name,
        train: splits.train.truncated(cut(settings.train_size)),
        test: splits.test.truncated(cut(settings.test_size)),
    })
}

fn optimizer(settings: &Settings) -> ModuleOptimizer {
    match settings.optimizer {
        OptimizerName::Adam => AdamConfig::new().init(),
        OptimizerName::Sgd => {
            let momentum = MomentumConfig::new().with_momentum(settings.momentum);
            SgdConfig::new().with_momentum(Some(momentum.with_dampening(0.0))).init()
        }
    }
}

fn train<M: Classifier>(
    model: M,
    data: Splits,
    settings: &Settings,
    device: &Device,
) -> Result<RunFigures, TrainError> {
    let items = [data.train.items().len(), data.test.items().len()];
    let (steps, steps_per_epoch) = (settings.steps(items[0]), settings.steps_per_epoch(items[0]));
    files::make_folder(&settings.output)?;

    let mut progress = Progress::start(0, steps, settings.batch_size, settings.privacy.is_some());
    let mut last = None;
    let after_step = |model: &M, step: Step| {
        progress.step(step);
        if step.number.is_multiple_of(steps_per_epoch) || step.number == steps {
            progress.pause();
            let test = Evaluation::of(model, &data.test, device);
            let epoch = step.number as f64 / steps_per_epoch as f64;
            progress.row(epoch, step.number, test, None);
            last = Some(test);
        }
        Ok(())
    };
    let training_device = device.clone().autodiff();
    let model = ordinary::train(
        model,
        optimizer(settings),
        &data.train,
        settings,
        &training_device,
        after_step,
    )?;
    let seconds = progress.finish().as_secs_f64();

    let test = last.unwrap_or_else(|| Evaluation::of(&model, &data.test, device));
    files::write_model(&settings.file(MODEL_FILE), model)?;
    let outcome = Outcome { steps, items, test, seconds, spent: None };
    let figures = RunFigures::new(data.name, settings, outcome);
    files::write_json(&settings.json, &figures)?;
    Ok(figures)
}
