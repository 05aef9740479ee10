//! A run from options to files.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::Device;

use super::figures::{Outcome, Spent};
use super::loading::{self, Data};
use super::options::{OptimizerName, TrainOptions, typed};
use super::private::PrivateTraining;
use super::progress::{Progress, Step};
use super::statement::{STATEMENT_JSON, STATEMENT_TEXT};
use super::{Evaluation, RunFigures, Settings, TrainError, device, files, ordinary, statement};
use crate::data::{Encoder, ItemDataset, Splits};
use crate::models::{Classifier, ImageNetwork, NetworkVisitor, TextNetwork};

/// Name of the file with the trained parameters, a Burn record.
pub const MODEL_FILE: &str = "model.bpk";
/// Name of the file with the averaged parameters, a Burn record.
pub const AVERAGED_MODEL_FILE: &str = "averaged-model.bpk";

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
    match loading::load(&settings)? {
        Data::Images(data) => {
            let network = ImageNetwork {
                name: settings.model,
                shape: data.encoder.shape,
                classes: data.classes,
                norm: settings.inputs.norm,
            };
            let run = Run::new(data, &settings, &device);
            network.visit(&device.clone().autodiff(), run)
        }
        Data::Texts(data, vectors) => {
            let name = settings.model.sequence().ok_or_else(|| {
                let reason = format!("{} does not read texts", typed(settings.model));
                TrainError::option("--model", reason)
            })?;
            let network = TextNetwork {
                name,
                vocabulary: data.encoder.vocabulary,
                length: data.encoder.length,
                classes: data.classes,
                vectors: vectors.as_ref(),
            };
            let run = Run::new(data, &settings, &device);
            network.visit(&device.clone().autodiff(), run)
        }
    }
}

/// A run that waits for its network.
struct Run<'a, E: Encoder> {
    data: Splits<E>,
    settings: &'a Settings,
    device: &'a Device,
}

impl<'a, E: Encoder> Run<'a, E> {
    /// Seeds the initial weights.
    fn new(data: Splits<E>, settings: &'a Settings, device: &'a Device) -> Self {
        // Of the initial weights only: noise and sampling have generators of their own.
        device.seed(settings.seed);
        Self { data, settings, device }
    }
}

impl<E: Encoder> NetworkVisitor<E::Inputs> for Run<'_, E> {
    type Output = Result<RunFigures, TrainError>;

    fn visit<M: Classifier<Inputs = E::Inputs>>(self, model: M) -> Self::Output {
        train(model, self.data, self.settings, self.device)
    }
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

fn train<E: Encoder, M: Classifier<Inputs = E::Inputs>>(
    model: M,
    data: Splits<E>,
    settings: &Settings,
    device: &Device,
) -> Result<RunFigures, TrainError> {
    let mut data = data;
    let public = match settings.privacy {
        None => ItemDataset::new(Vec::new()),
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
            &data,
            public,
            &trained,
        )?),
    };
    files::make_folder(&settings.output)?;
    for name in [MODEL_FILE, AVERAGED_MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT] {
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
            let test = Evaluation::of(model, &data.encoder, &data.test, device);
            let epoch = step.number as f64 / steps_per_epoch as f64;
            progress.row(epoch, step.number, test, step.epsilon);
            last = Some(test);
        }
        Ok(())
    };
    let (model, average, private) = match prepared {
        Some(training) => {
            let (model, optim, checkpoints) =
                training.train(&data.encoder, &data.train, settings, &trained, after_step)?;
            let average = optim.weight_average().cloned();
            (model, average, Some((optim, checkpoints)))
        }
        None => {
            let optimizer = optimizer(settings);
            let (encoder, items) = (&data.encoder, &data.train);
            let (model, average) =
                ordinary::train(model, optimizer, encoder, items, settings, &trained, after_step)?;
            (model, average, None)
        }
    };
    let seconds = progress.finish().as_secs_f64();
    let test = last.unwrap_or_else(|| Evaluation::of(&model, &data.encoder, &data.test, device));

    let averaged = match average {
        Some(average) => {
            let model = average.averaged(model.clone())?;
            let test = Evaluation::of(&model, &data.encoder, &data.test, device);
            files::write_model(&settings.file(AVERAGED_MODEL_FILE), model)?;
            Some(test)
        }
        None => None,
    };
    files::write_model(&settings.file(MODEL_FILE), model)?;
    let mut outcome = Outcome { steps, items, test, averaged, seconds, spent: None };
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
