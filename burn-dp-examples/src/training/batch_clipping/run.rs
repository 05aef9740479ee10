//! A run with batch clipping, from options to files.

use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::optim::SgdConfig;
use burn::optim::momentum::MomentumConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::{
    Clipping, LayerwiseClipping, MultipliedClipping, ParameterGroups, PublicNorms,
};
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp::optim::DpOptimizer;
use burn_dp::units::{LocalTraining, UnitUpdate, private_copy, public_statistics};

use super::data::{BatchData, load};
use super::{
    BatchFigures, BatchModelName, BatchOptions, BatchPolicyName, BatchSettings, EpochFigures,
};
use crate::data::{ImageBatcher, ImageItem};
use crate::models::{BnLeNet5, BnLeNet5Config, Classifier};
use crate::training::checkpoints::Checkpoints;
use crate::training::options::typed;
use crate::training::plot::{self, Series};
use crate::training::progress::upwards;
use crate::training::run::MODEL_FILE;
use crate::training::statement::{STATEMENT_JSON, STATEMENT_TEXT};
use crate::training::{Evaluation, TrainError, device, files};

/// Images of a public batch.
const PUBLIC_BATCH: usize = 64;

/// Public batches whose statistics a model gets for inference: the running averages that it began with
/// weigh 0.9^100 after them.
const PUBLIC_BATCHES: usize = 100;

/// Public units whose norms the layerwise thresholds follow.
const PUBLIC_UNITS: usize = 100;

/// Trains as the options say, and writes model, privacy statement, figures and plot.
///
/// # Errors
///
/// When an option is impossible or the data cannot be read, before anything is written; and when the
/// training or the writing fails.
pub fn run(options: BatchOptions) -> Result<BatchFigures, TrainError> {
    let settings = BatchSettings::new(&options)?;
    let device = device(options.backend)?;
    let data = load(&options.data)?;
    settings.plan(&settings.sets(data.private.len())?, None)?;
    let checkpoints = Checkpoints::of(&options.output, settings.compared(&options));
    if !options.resume {
        checkpoints.refuse_interrupted_run()?;
    }
    files::make_folder(&options.output)?;
    let at = |name: &str| options.output.join(name);
    for name in [MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT] {
        files::remove(&at(name))?;
    }
    println!("epoch   test loss   test acc.   epsilon");
    let begun = Some((&checkpoints, options.resume));
    let (model, optim, figures) = train(&settings, &data, &device, begun, |epoch| {
        println!(
            "{:<8}{:<12.4}{:<12}{}",
            epoch.epoch,
            epoch.test_loss,
            format!("{:.2} %", 100.0 * epoch.test_accuracy),
            epoch.epsilon.map_or("none".into(), upwards)
        );
    })?;
    files::write_model(&at(MODEL_FILE), model)?;
    let mut statement = optim.statement(&[settings.delta])?;
    statement.facts.insert("dataset".into(), data.name.clone());
    statement.facts.insert("public_examples".into(), data.public.len().to_string());
    if let Some(statistics) = statement.facts.get_mut("running_statistics") {
        *statistics =
            "of public images, computed after the training; private batches changed copies \
                       of the model only"
                .into();
    }
    statement.not_covered.extend(
        [
            "The public images, and the images and labels of the test set.",
            "Settings that were chosen by looking at results of earlier runs on the same data.",
        ]
        .map(String::from),
    );
    files::write_json(&at(STATEMENT_JSON), &statement)?;
    files::write(&at(STATEMENT_TEXT), statement.to_string().as_bytes())?;
    let points = figures.epochs.iter().map(|epoch| (epoch.epoch as f64, epoch.test_accuracy));
    let series = Series { name: figures.clipping.clone(), points: points.collect() };
    plot::lines(&at("accuracy.svg"), ["Batch clipping", "epoch", "test accuracy"], &[series])?;
    files::write_json(options.json.as_ref().unwrap_or(&at("run.json")), &figures)?;
    checkpoints.remove()?;
    println!("\n{statement}");
    println!("files: {}", options.output.display());
    Ok(figures)
}

/// Trains on the private images, and measures after each epoch.
///
/// # Arguments
///
/// - `checkpoints`: where one is saved after each epoch, and whether to go on from the last
///
/// # Errors
///
/// When the settings do not fit the data, and those of the steps.
pub(crate) fn train(
    settings: &BatchSettings,
    data: &BatchData,
    device: &Device,
    checkpoints: Option<(&Checkpoints, bool)>,
    mut after_epoch: impl FnMut(&EpochFigures),
) -> Result<(BnLeNet5, DpOptimizer, BatchFigures), TrainError> {
    let sets = settings.sets(data.private.len())?;
    let steps_per_epoch = settings.steps_per_epoch(&sets);
    // Of the initial weights only: noise and sampling have generators of their own.
    device.seed(settings.seed);
    let trained = device.clone().autodiff();
    let batch_norm = settings.model == BatchModelName::BnLenet5;
    let mut model = BnLeNet5Config::new().with_batch_norm(batch_norm).init(&trained);
    let loss = CrossEntropyLossConfig::new().init();
    let local = local_training(settings)?;
    let compute = |model: BnLeNet5, items: Vec<ImageItem>| {
        update(model, data.encoder, items, &local, &loss, &trained)
    };
    let layers = match settings.policy {
        BatchPolicyName::Flat => None,
        _ => Some(ParameterGroups::per_layer(&model)?),
    };
    let public_norms = |model: &BnLeNet5, layers: &ParameterGroups| {
        let mut norms = PublicNorms::new(layers.clone());
        let units = data.public.chunks(settings.mini_set_size.min(data.public.len()));
        for items in units.take(PUBLIC_UNITS) {
            norms.add_update(&compute(private_copy(model), items.to_vec())?, model)?;
        }
        Ok::<_, DpError>(norms)
    };
    let clipping = match &layers {
        None => None,
        Some(layers) => {
            let (norms, master) = (public_norms(&model, layers)?, settings.max_grad_norm);
            let clipping: Box<dyn Clipping> = match settings.policy {
                BatchPolicyName::Zhang => Box::new(LayerwiseClipping::zhang(&norms)?),
                BatchPolicyName::Multipliers => {
                    Box::new(MultipliedClipping::from_public(master, &norms)?)
                }
                _ => Box::new(LayerwiseClipping::enhanced(master, &norms)?),
            };
            Some(clipping)
        }
    };
    let plan = settings.plan(&sets, clipping)?;

    let inner = SgdConfig::new().init();
    let mut optim = match checkpoints {
        Some((checkpoints, true)) => {
            let (optim, restored) = checkpoints.resume(plan, inner, model)?;
            model = restored;
            optim
        }
        _ => plan.optimizer(inner),
    };
    if let Some((checkpoints, _)) = checkpoints {
        checkpoints.begin()?;
    }
    let sampler = optim.plan().sampler()?;
    let first = optim.next_step() as usize / steps_per_epoch;
    let (mut epochs, mut lr) = (Vec::new(), settings.lr * settings.lr_decay.powi(first as i32));
    let (mut time, mut since) = (Duration::ZERO, Instant::now());
    let measured = |model: &BnLeNet5| Evaluation::of(model, &data.encoder, &data.test, device);
    'epochs: for epoch in first + 1..=settings.epochs {
        for _ in 0..steps_per_epoch {
            let draw = sampler.draw(optim.next_step())?;
            optim.unit_updates(&model, draw.private_indices(), |copy: BnLeNet5, &set| {
                compute(copy, sets.members(set).iter().map(|&i| data.private[i].clone()).collect())
            })?;
            model = match optim.step(lr, model, draw) {
                Ok(model) => model,
                Err(refused) if matches!(refused.error(), DpError::BudgetExhausted { .. }) => {
                    println!("stopped: {refused}");
                    model = refused.into_model();
                    break 'epochs;
                }
                Err(refused) => return Err(DpError::from(refused).into()),
            };
        }
        lr *= settings.lr_decay;
        if let Some(layers) = &layers {
            optim.learn_from_public(&public_norms(&model, layers)?)?;
        }
        if let Some((checkpoints, _)) = checkpoints
            && epoch < settings.epochs
        {
            checkpoints.save(&model, &optim)?;
        }
        time += since.elapsed();
        let test = measured(&with_public_statistics(&model, data, &trained));
        let epsilon = optim.privacy_spent(settings.delta)?.upper;
        let figures = EpochFigures {
            epoch,
            test_loss: test.loss,
            test_accuracy: test.accuracy,
            epsilon: epsilon.is_finite().then_some(epsilon),
        };
        after_epoch(&figures);
        epochs.push(figures);
        since = Instant::now();
    }
    let model = with_public_statistics(&model, data, &trained);
    let test = measured(&model);
    let epsilon = optim.privacy_spent(settings.delta)?.upper;
    let figures = BatchFigures {
        dataset: data.name.clone(),
        model: typed(settings.model),
        clipping: optim.ledger().header().clipping.clone(),
        mini_set_size: settings.mini_set_size,
        mini_sets: settings.mini_sets,
        unit: optim.plan().unit().to_string(),
        relation: optim.plan().relation().to_string(),
        noise_multiplier: optim.plan().noise_multiplier(),
        delta: settings.delta,
        steps: optim.next_step(),
        test_accuracy: test.accuracy,
        epsilon: epsilon.is_finite().then_some(epsilon),
        epochs,
        train_seconds: time.as_secs_f64(),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok((model, optim, figures))
}

/// Local SGD with momentum and the number of its steps, in general batch clipping.
fn local_training(settings: &BatchSettings) -> Result<Option<(usize, LocalTraining)>, TrainError> {
    let Some((steps, lr)) = settings.local else { return Ok(None) };
    let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
    let sgd = SgdConfig::new().with_momentum(Some(momentum)).init();
    Ok(Some((steps, LocalTraining::new(sgd, lr)?)))
}

/// What one mini-set contributes.
fn update(
    model: BnLeNet5,
    encoder: ImageBatcher,
    items: Vec<ImageItem>,
    local: &Option<(usize, LocalTraining)>,
    loss: &CrossEntropyLoss,
    device: &Device,
) -> Result<UnitUpdate, DpError> {
    let losses = |model: &BnLeNet5, items: Vec<ImageItem>| {
        let batch = encoder.batch(items, device);
        loss.forward(model.forward(batch.inputs), batch.targets)
    };
    match local {
        None => {
            let losses = losses(&model, items);
            UnitUpdate::gradient(&model, losses)
        }
        Some((steps, training)) => {
            // Part after part of the mini-set, so that every image is used once.
            let part = items.len().div_ceil(*steps);
            let parts: Vec<Vec<ImageItem>> = items.chunks(part).map(<[_]>::to_vec).collect();
            training.run(model, parts, |model, items| Ok(losses(model, items)))
        }
    }
}

/// The model as it is released: what its BatchNorms need for inference comes from public images.
fn with_public_statistics(model: &BnLeNet5, data: &BatchData, trained: &Device) -> BnLeNet5 {
    let batches = data.public.chunks(PUBLIC_BATCH).cycle().take(PUBLIC_BATCHES);
    public_statistics(model.clone(), batches, |model, items| {
        let batch = data.encoder.batch(items.to_vec(), trained);
        let _ = model.forward(batch.inputs);
    })
}
