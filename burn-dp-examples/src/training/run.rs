//! A run from options to files.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::Device;

use super::figures::{Outcome, Spent};
use super::options::{DatasetName, ModelName, OptimizerName, TrainOptions};
use super::private::PrivateTraining;
use super::progress::{Progress, Step};
use super::statement::{STATEMENT_JSON, STATEMENT_TEXT};
use super::{Evaluation, RunFigures, Settings, TrainError, device, files, ordinary, statement};
use crate::data::{ImageDataset, Splits, digits, mnist};
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
    let mut data = data;
    let public = match settings.privacy {
        None => ImageDataset::new(Vec::new()),
        Some(privacy) => {
            let (train, public) = privacy.clipping.split(data.train)?;
            data.train = train;
            public
        }
    };
    let items = [data.train.items().len(), data.test.items().len()];
    settings.fit(items[0])?;
    let (steps, steps_per_epoch) = (settings.steps(items[0]), settings.steps_per_epoch(items[0]));
    let trained = device.clone().autodiff();
    // Everything that can be refused is refused before the first file.
    let prepared = match settings.privacy {
        None => None,
        Some(privacy) => Some(PrivateTraining::prepare(
            model.clone(),
            optimizer(settings),
            privacy,
            settings,
            items[0],
            public,
            &trained,
        )?),
    };
    files::make_folder(&settings.output)?;
    for name in [MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT] {
        // Of an earlier run: its statement must not stand beside another model.
        files::remove(&settings.file(name))?;
    }

    let first = prepared.as_ref().map_or(0, PrivateTraining::first_step);
    let mut progress =
        Progress::start(first, steps, settings.batch_size, settings.privacy.is_some());
    let mut last = None;
    let after_step = |model: &M, step: Step| {
        progress.step(step);
        last = None;
        if step.number.is_multiple_of(steps_per_epoch) || step.number == steps {
            progress.pause();
            let test = Evaluation::of(model, &data.test, device);
            let epoch = step.number as f64 / steps_per_epoch as f64;
            progress.row(epoch, step.number, test, step.epsilon);
            last = Some(test);
        }
        Ok(())
    };
    let (model, private) = match prepared {
        Some(training) => {
            let (model, optim, checkpoints) =
                training.train(&data.train, settings, &trained, after_step)?;
            (model, Some((optim, checkpoints)))
        }
        None => {
            let optimizer = optimizer(settings);
            let model =
                ordinary::train(model, optimizer, &data.train, settings, &trained, after_step)?;
            (model, None)
        }
    };
    let seconds = progress.finish().as_secs_f64();
    let test = last.unwrap_or_else(|| Evaluation::of(&model, &data.test, device));

    files::write_model(&settings.file(MODEL_FILE), model)?;
    let mut outcome = Outcome { steps, items, test, seconds, spent: None };
    if let (Some((optim, _)), Some(privacy)) = (&private, settings.privacy) {
        outcome.steps = optim.next_step() as usize;
        outcome.spent = Some(Spent::of(optim, privacy.delta)?);
        if outcome.steps < steps {
            let made = outcome.steps;
            println!("stopped after {made} of {steps} steps: the next one would break the budget");
        }
        let statement = statement::statement(optim, privacy, &data.name)?;
        statement::write(&statement, settings)?;
        println!("\n{statement}");
    }
    let figures = RunFigures::new(data.name, settings, outcome);
    files::write_json(&settings.json, &figures)?;
    if let Some((_, checkpoints)) = private {
        checkpoints.remove()?;
    }
    println!("{}", figures.summary());
    println!("files: {}", settings.output.display());
    Ok(figures)
}
