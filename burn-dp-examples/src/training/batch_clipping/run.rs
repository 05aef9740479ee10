//! A run with batch clipping, from options to files.

use burn::tensor::Device;

use super::training::{BatchTraining, network};
use super::{BatchData, BatchFigures, BatchModel, BatchSettings, data};
use crate::plot::{self, Series};
use crate::training::checkpoints::Checkpoints;
use crate::training::compared::Compared;
use crate::training::output::{ACCURACY_PLOT, Measurement, Output};
use crate::training::progress::{
    EPSILON, Progress, TEST_ACCURACY, TEST_LOSS, announce, counted, percent, upwards,
};
use crate::training::statement::{Described, published_number};
use crate::training::{DataOptions, TrainError, TrainOptions, device, typed};

/// Trains with the given options, and writes the model, the privacy statement, the figures and the
/// plots.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if an option is impossible and [`TrainError::Data`] if the data
/// cannot be read, both before anything is written; and the errors of training and writing.
pub fn run(options: TrainOptions) -> Result<BatchFigures, TrainError> {
    let settings = BatchSettings::try_from(&options)?;
    let TrainOptions { data, run, .. } = options;
    let output = Output::new(&run)?;
    let device = device(run.backend)?;
    let data_options = data.checked(DataOptions::environment())?;
    let data = data::read(&data_options, settings.model, settings.needs_public())?;
    let compared =
        Compared { data: Some(&data_options), settings: &settings, backend: run.backend };
    let checkpoints = Checkpoints::new(&output.folder, &compared)?;
    let checkpoints = checkpoints.with_data(&data.private).with_start(run.start());
    let run = BatchRun {
        data_options: &data_options,
        settings: &settings,
        data: &data,
        device: &device,
        output,
        checkpoints,
    };
    run.train(network(&settings, &data, &device))
}

/// A run whose options were checked.
struct BatchRun<'a> {
    data_options: &'a DataOptions,
    settings: &'a BatchSettings,
    data: &'a BatchData,
    device: &'a Device,
    output: Output,
    checkpoints: Checkpoints,
}

impl BatchRun<'_> {
    fn train(self, model: BatchModel) -> Result<BatchFigures, TrainError> {
        let Self { data_options, settings, data, device, output, checkpoints } = self;
        // All checks come before the first file is written.
        let training = BatchTraining::prepare(model, settings, data, device, Some(&checkpoints))?;
        output.begin()?;
        let steps_per_epoch = training.steps_per_epoch();
        let steps = settings.epochs * steps_per_epoch;
        let subject = format!(
            "{} on {}: {} images in mini-sets of {}, {} of {}, {} per pass over the data",
            typed(settings.model),
            data.name,
            data.private.len(),
            settings.mini_sets.mini_set_size,
            counted(steps, "step"),
            counted(settings.mini_sets.mini_sets, "mini-set"),
            counted(steps_per_epoch, "step")
        );
        announce(&subject, Some((training.plan(), settings.privacy.delta)))?;
        let columns = vec![("epoch", 8, "passes over the data"), TEST_LOSS, TEST_ACCURACY, EPSILON];
        let pass = ("pass over the data", steps_per_epoch);
        let mut progress = Progress::start(training.first_step(), steps, pass, columns);
        let (model, mut optim, figures) =
            training.train(Some(&checkpoints), |step, epoch| match epoch {
                None => progress.step(step),
                Some(epoch) => {
                    progress.pause();
                    progress.row([
                        epoch.epoch.to_string(),
                        format!("{:.4}", epoch.test_loss),
                        percent(epoch.test_accuracy),
                        epoch.epsilon.map_or("none".into(), upwards),
                    ]);
                }
            })?;
        progress.finish();
        let mut facts = vec![("dataset", data.name.clone())];
        if let Some(augmentation) = &settings.augmentation {
            facts.push(("augmentation", augmentation.description()));
        }
        if settings.has_statistics() {
            let statistics = "of public images, computed after the training";
            facts.push(("statistics_of_the_saved_model", statistics.into()));
        }
        let not_covered = "The public images, and the images and labels of the test set, which is \
                           taken as public.";
        let not_covered = [published_number("examples"), not_covered.into()];
        let not_covered = not_covered.into_iter().chain(data_options.not_covered()).collect();
        let described = Described { facts, not_covered };
        output.ledger(Some(&described.ledger(&optim)))?;
        output.models(model, None)?;
        optim.forget_key()?;
        let (deltas, group) = ([settings.privacy.delta], settings.privacy.group);
        output.statement(&described.ledger(&optim), &deltas, group)?;
        let points = figures.epochs.iter().map(|epoch| (epoch.epoch as f64, epoch.test_accuracy));
        let series = Series::new(&figures.clipping, points);
        let titles = ["Batch clipping", "epoch", "test accuracy"];
        plot::lines(&output.file(ACCURACY_PLOT), titles, &[series])?;
        let measured = figures.epochs.iter().map(|epoch| Measurement {
            step: epoch.epoch * steps_per_epoch,
            accuracy: epoch.test_accuracy,
            epsilon: epoch.epsilon.unwrap_or(f64::INFINITY),
        });
        let title = format!("{} on {}, batch clipping", typed(settings.model), data.name);
        output.plot(&title, &measured.collect::<Vec<_>>())?;
        output.print(figures.summary());
        output.figures(&figures)?;
        drop(optim);
        checkpoints.remove()?;
        Ok(figures)
    }
}
