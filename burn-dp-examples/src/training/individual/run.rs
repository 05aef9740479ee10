//! A run from options to files.

use std::path::{Path, PathBuf};

use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use burn_dp::PublicSource;

use super::figures::{Outcome, columns, described};
use super::private::{FinishedStep, PrivateRun};
use super::public_items::PublicInputs;
use super::{IndividualSettings, RunFigures, ordinary};
use crate::data::{Encoder, FeatureBatcher, ItemDataset, Splits, WordVectors};
use crate::models::{Classifier, ImageNetwork, TextNetwork};
use crate::training::checkpoints::Checkpoints;
use crate::training::checksum::checksum;
use crate::training::loading::Loaded;
use crate::training::optimizer::optimizer;
use crate::training::options::{DatasetName, typed};
use crate::training::output::Measurement;
use crate::training::progress::{Progress, Waiting, announce, counted, loss, percent, upwards};
use crate::training::{
    Augmentation, DataOptions, Evaluation, TrainError, TrainOptions, device, public_data,
};

/// Values of δ at which a statement reports ε, in addition to the δ of the run.
const DELTAS: [f64; 4] = [1e-4, 1e-5, 1e-6, 1e-8];

/// Trains with the given options, and writes the model, the privacy statement, the figures and the
/// plot.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if an option is impossible and [`TrainError::Data`] if the data
/// cannot be read, both before anything is written; and the errors of training and writing.
pub fn run(options: TrainOptions) -> Result<RunFigures, TrainError> {
    run_on(options, &mut Loaded::default())
}

/// [Trains](run) with data that may have been read before.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub(in crate::training) fn run_on(
    options: TrainOptions,
    loaded: &mut Loaded,
) -> Result<RunFigures, TrainError> {
    let settings = IndividualSettings::new(options, DataOptions::environment())?;
    let device = device(settings.backend)?;
    // This only affects the initial weights, because noise and sampling have their own generators.
    device.seed(settings.data.seed);
    let (data, inputs) = (&settings.data, &settings.inputs);
    if data.dataset != DatasetName::Imdb {
        let options = data;
        let data = loaded.images(options, inputs.image_size)?;
        let public = settings.needs_public().then(|| public_data::images(options, &data));
        let public = public.transpose()?;
        let mut network = ImageNetwork {
            name: settings.model,
            shape: data.encoder.shape,
            classes: data.classes,
            norm: inputs.norm,
        };
        let trained = device.clone().autodiff();
        if !inputs.scattering {
            let public = PublicInputs { items: public, words: None };
            let network = network.init(&trained);
            return match &inputs.augmentation {
                None => train(network, data, public, &settings, &device),
                moved => {
                    let network = Augmentation::of(moved.as_ref(), network)?;
                    train(network, data, public, &settings, &device)
                }
            };
        }
        let batcher = FeatureBatcher::new(data.encoder, &device).ok_or_else(|| {
            TrainError::option("--scattering", "needs images of at least 5 x 5 pixels")
        })?;
        let of_public = |item| batcher.features(&[item]).swap_remove(0);
        let public = PublicInputs { items: public.map(|data| data.map(of_public)), words: None };
        network.shape = batcher.shape();
        let images = data.train.items().len() + data.test.items().len();
        let waiting = Waiting::start("scattering features of images", images);
        let data = batcher.splits(data, || waiting.done_one());
        waiting.finish();
        return train(network.init(&trained), data, public, &settings, &device);
    }
    let (vocabulary_size, length) = (inputs.vocabulary_size, inputs.sequence_length);
    let (options, words) = (data, inputs.word_vectors.as_ref());
    let (data, vectors) = loaded.reviews(options, vocabulary_size, length, words)?;
    let public = || public_data::reviews(options, &data, vocabulary_size, length, words);
    let items = settings.needs_public().then(public).transpose()?;
    let named = |(path, vectors): (&PathBuf, &WordVectors)| {
        let file = path.file_name().unwrap_or_default().display();
        let count = vectors.rows.len() / vectors.dimension.max(1);
        PublicSource::published(format!("word vectors of {file}")).data(vec![(); count])
    };
    let words = words.zip(vectors.as_ref()).map(named).transpose()?;
    let public = PublicInputs { items, words };
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
    train(network.init(&device.clone().autodiff()), data, public, &settings, &device)
}

/// Returns the number of examples to train on, and a checksum of them and of the test examples.
///
/// # Errors
///
/// Returns [`TrainError::Data`] if the data cannot be read.
pub(in crate::training) fn examples(
    settings: &IndividualSettings,
    loaded: &mut Loaded,
) -> Result<(usize, String), TrainError> {
    fn of<E: Encoder>(data: &Splits<E>) -> (usize, String) {
        let [train, test] = [&data.train, &data.test].map(ItemDataset::items);
        (train.len(), checksum(&(train, test)))
    }
    let (data, inputs) = (&settings.data, &settings.inputs);
    if data.dataset != DatasetName::Imdb {
        return Ok(of(&loaded.images(data, inputs.image_size)?));
    }
    let (vocabulary_size, length) = (inputs.vocabulary_size, inputs.sequence_length);
    let words = inputs.word_vectors.as_ref();
    let (data, _) = loaded.reviews(data, vocabulary_size, length, words)?;
    Ok(of(&data))
}

/// Returns whether a run with this output folder was interrupted and can be resumed.
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the checkpoints cannot be read.
pub fn is_interrupted(output: &Path) -> Result<bool, TrainError> {
    Checkpoints::are_in(output)
}

fn train<E: Encoder, M: Classifier<Inputs = E::Inputs>>(
    model: M,
    data: Splits<E>,
    public: PublicInputs<E::Item>,
    settings: &IndividualSettings,
    device: &Device,
) -> Result<RunFigures, TrainError> {
    let items = [data.train.items().len(), data.test.items().len()];
    settings.fit(items[0])?;
    let (steps, steps_per_epoch) = (settings.steps(items[0]), settings.steps_per_epoch(items[0]));
    let trained = device.clone().autodiff();
    let inner = || -> ModuleOptimizer { optimizer(settings.optimizer, settings.momentum) };
    if settings.private.is_none() {
        Checkpoints::refuse_in(&settings.output.folder)?;
    }
    // All checks come before the first file is written.
    let prepared = match settings.private {
        None => None,
        Some(private) => Some(PrivateRun::prepare(
            model.clone(),
            inner(),
            private,
            settings,
            &data,
            public,
            &trained,
        )?),
    };
    let output = &settings.output;
    output.begin()?;

    let subject = format!(
        "{} on {}: {}, {} of {}, {} per pass over the data",
        typed(settings.model),
        data.name,
        counted(items[0], "example"),
        counted(steps, "step"),
        counted(settings.mean_batch(items[0]), "example"),
        counted(steps_per_epoch, "step")
    );
    let privacy = settings.private.map(|private| private.privacy);
    let delta = privacy.map(|privacy| privacy.delta);
    if output.prints {
        announce(&subject, prepared.as_ref().map(PrivateRun::plan).zip(delta))?;
    }
    let first = prepared.as_ref().map_or(0, PrivateRun::first_step);
    let pass = ("pass over the data", steps_per_epoch);
    let mut progress = Progress::start(first, steps, pass, columns(delta.is_some()));
    let (mut last, mut measurements) = (None, Vec::new());
    let after_step = |model: &M, step: FinishedStep| {
        progress.step(step.number);
        last = None;
        if step.number.is_multiple_of(steps_per_epoch) || step.number == steps {
            progress.pause();
            let test = Evaluation::of(model, &data.encoder, &data.test, device);
            let epoch = step.number as f64 / steps_per_epoch as f64;
            // The true number of examples is private.
            let speed = progress.steps_per_second() * settings.mean_batch(items[0]) as f64;
            let mut cells = vec![
                format!("{epoch:.1}"),
                step.number.to_string(),
                loss(test.loss),
                percent(test.accuracy),
            ];
            if let Some(epsilon) = step.epsilon {
                cells.push(upwards(epsilon));
                let measured = Measurement { step: step.number, accuracy: test.accuracy, epsilon };
                measurements.push(measured);
            }
            cells.push(format!("{speed:.0}"));
            progress.row(cells);
            last = Some(test);
        }
        Ok(())
    };
    let (model, average, mut private) = match prepared {
        Some(training) => {
            let (model, optim, checkpoints) =
                training.train(&data.encoder, &data.train, settings, &trained, after_step)?;
            let average = optim.weight_average().cloned();
            (model, average, Some((optim, checkpoints)))
        }
        None => {
            let (encoder, items) = (&data.encoder, &data.train);
            let (model, average) =
                ordinary::train(model, inner(), encoder, items, settings, &trained, after_step)?;
            (model, average, None)
        }
    };
    let seconds = progress.finish().as_secs_f64();
    let test = last.unwrap_or_else(|| Evaluation::of(&model, &data.encoder, &data.test, device));

    let average = average.map(|average| average.averaged(model.clone())).transpose()?;
    let averaged =
        average.as_ref().map(|model| Evaluation::of(model, &data.encoder, &data.test, device));
    let described = described(settings, &data.name);
    output.ledger(private.as_ref().map(|(optim, _)| described.ledger(optim)).as_ref())?;
    output.models(model, average)?;
    if let Some((optim, _)) = &mut private {
        optim.forget_key()?;
    }
    let mut outcome = Outcome { steps, items, test, averaged, seconds };
    if let (Some((optim, _)), Some(delta)) = (&private, delta) {
        outcome.steps = optim.next_step() as usize;
        if outcome.steps < steps {
            let made = outcome.steps;
            print_line!(
                "stopped after {made} of {steps} steps: the next step would exceed the budget"
            );
        }
        let group = privacy.and_then(|one| one.group);
        output.statement(&described.ledger(optim), &deltas(delta, items[0]), group)?;
        let title = format!("{} on {}", typed(settings.model), data.name);
        output.plot(&title, &measurements)?;
    }
    let optim = private.as_ref().map(|(optim, _)| optim);
    let figures = RunFigures::new(data.name, settings, outcome, optim)?;
    output.print(figures.summary());
    output.figures(&figures)?;
    if let Some((optim, checkpoints)) = private {
        drop(optim);
        checkpoints.remove()?;
    }
    Ok(figures)
}

/// Returns the δ of the run, and then the other values below 1/N.
fn deltas(delta: f64, dataset_size: usize) -> Vec<f64> {
    let below = |other: &f64| *other != delta && *other < 1.0 / dataset_size as f64;
    [delta].into_iter().chain(DELTAS.into_iter().filter(below)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delta_of_the_run_is_first_and_none_is_above_one_over_n() {
        assert_eq!(deltas(1e-5, 60_000), [1e-5, 1e-6, 1e-8]);
        assert_eq!(deltas(2e-5, 12_000), [2e-5, 1e-5, 1e-6, 1e-8]);
        assert_eq!(deltas(1e-3, 100), [1e-3, 1e-4, 1e-5, 1e-6, 1e-8]);
    }
}
