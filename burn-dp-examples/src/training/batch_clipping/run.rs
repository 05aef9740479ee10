//! A run with batch clipping, from options to files.

use super::{BatchFigures, BatchOptions, BatchSettings, BatchTraining, load};
use crate::training::checkpoints::Checkpoints;
use crate::training::plot::{self, Series};
use crate::training::progress::upwards;
use crate::training::run::MODEL_FILE;
use crate::training::statement::{STATEMENT_JSON, STATEMENT_TEXT};
use crate::training::{TrainError, device, files};

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
    let checkpoints = Checkpoints::of(&options.output, settings.compared(&options));
    if !options.resume {
        checkpoints.refuse_interrupted_run()?;
    }
    // Everything that can be refused is refused before the first file.
    let resumed = options.resume.then_some(&checkpoints);
    let training = BatchTraining::prepare(&settings, &data, &device, resumed)?;
    files::make_folder(&options.output)?;
    let at = |name: &str| options.output.join(name);
    for name in [MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT] {
        // Of an earlier run: its statement must not stand beside another model.
        files::remove(&at(name))?;
    }
    println!("epoch   test loss   test acc.   epsilon");
    let (model, optim, figures) = training.train(Some(&checkpoints), |epoch| {
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
