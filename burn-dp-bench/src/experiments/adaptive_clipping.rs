//! Clipping to a private quantile of the norms without tuning, compared with the best threshold of
//! a grid.
//!
//! # References
//!
//! Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping,
//! 2021.

use std::path::PathBuf;

use burn::tensor::Device;
use burn_dp::clipping::{Clipping, CountNoise, FlatClipping, QuantileClipping};
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp_accountant::{Budget, Rounded};
use clap::Args;
use serde::Serialize;

use burn_dp_examples::data::{ImageBatcher, Splits, digits, mnist};
use burn_dp_examples::models::{Classifier, CnnConfig};
use burn_dp_examples::plot::{self, Series};
use burn_dp_examples::training::{BackendName, Evaluation, TrainError, checks, device, files};

use super::trial::momentum_sgd;

/// Options of the experiment.
#[derive(Args, Debug, Clone)]
pub struct AdaptiveClippingOptions {
    /// Folder with the four IDX files of MNIST, plain or gzip; without it, the synthetic digits.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Use only this many images to train on.
    #[arg(long, value_name = "N")]
    pub train_size: Option<usize>,
    /// Use only this many images to test on.
    #[arg(long, value_name = "N")]
    pub test_size: Option<usize>,
    /// Passes over the data of each run.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub epochs: usize,
    /// Privacy budget of each run.
    #[arg(long, default_value_t = 3.0)]
    pub epsilon: f64,
    /// Probability with which the budget may be exceeded; less than 1/N.
    #[arg(long, default_value_t = 1e-5)]
    pub delta: f64,
    /// Expected size of a logical batch.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub batch_size: usize,
    /// Fixed thresholds to compare with.
    #[arg(long, value_delimiter = ',', default_values = ["0.05", "0.1", "0.3", "1", "3", "10"])]
    pub grid: Vec<f64>,
    /// Fractions of the examples that should not be clipped.
    #[arg(long, value_delimiter = ',', default_values = ["0.5"])]
    pub target_quantiles: Vec<f64>,
    /// Thresholds to start from.
    #[arg(long, value_delimiter = ',', default_values = ["0.1"])]
    pub start: Vec<f64>,
    /// Learning rate divided by the threshold: the update of a clipped example has this length for
    /// every threshold, so that thresholds are compared, not learning rates.
    #[arg(long, default_value_t = 0.5)]
    pub lr: f64,
    /// Largest number of examples in memory at once (the physical batch).
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub physical_batch_size: usize,
    /// Backend to train on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Seed of the initial weights and of the synthetic digits.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Folder for the figures and the plots.
    #[arg(long, value_name = "DIR", default_value = "out/experiment-adaptive-clipping")]
    pub output: PathBuf,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdaptiveClippingRun {
    /// Threshold or quantile in words.
    pub name: String,
    /// Whether the threshold was fixed.
    pub fixed: bool,
    /// Upper bound of ε at the end.
    pub epsilon: f64,
    /// Noise multiplier of a whole step, including counts.
    pub noise_multiplier: f64,
    /// Share of the test images that are classified correctly, after each pass over the data.
    pub test_accuracy: Vec<f64>,
    /// Threshold of each step.
    pub thresholds: Vec<f64>,
}

/// Trains with every fixed threshold and with every quantile, and compares.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, [`TrainError::Data`] if the data cannot
/// be read, and the error of a run that fails.
pub(super) fn run(
    options: AdaptiveClippingOptions,
) -> Result<Vec<AdaptiveClippingRun>, TrainError> {
    check(&options)?;
    let policies = policies(&options)?;
    let device = device(options.backend)?;
    let data = load(&options)?;
    files::make_folder(&options.output)?;
    println!("{}: {} images, epsilon {}", data.name, data.train.items().len(), options.epsilon);
    println!(
        "{:<28}{:>10}{:>10}{:>12}{:>12}",
        "clipping", "sigma", "epsilon", "accuracy", "last C"
    );
    let mut runs = Vec::new();
    for (name, fixed, policy) in policies {
        let run = train(name, fixed, policy, &options, &data, &device)?;
        println!(
            "{:<28}{:>10.4}{:>10}{:>12}{:>12.4}",
            run.name,
            run.noise_multiplier,
            Rounded::up(run.epsilon).to_string(),
            run.test_accuracy.last().map_or_else(String::new, |a| format!("{:.2} %", 100.0 * a)),
            run.thresholds.last().copied().unwrap_or(f64::NAN),
        );
        runs.push(run);
    }
    let best = |fixed: bool| {
        let runs = runs.iter().filter(|run| run.fixed == fixed);
        let last = runs.filter_map(|run| Some((run.test_accuracy.last().copied()?, &run.name)));
        last.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    if let (Some((fixed, name)), Some((adaptive, adaptive_name))) = (best(true), best(false)) {
        println!(
            "best fixed threshold: {name}, {:.2} %; {adaptive_name}: {:.2} %, {:+.2} points",
            100.0 * fixed,
            100.0 * adaptive,
            100.0 * (adaptive - fixed)
        );
    }
    let at = |name: &str| options.output.join(name);
    let accuracy: Vec<Series> =
        runs.iter().map(|run| series(&run.name, run.test_accuracy.iter().copied(), 1.0)).collect();
    let title = format!("{}, epsilon {}", data.name, options.epsilon);
    plot::lines(&at("accuracy.svg"), [&title, "epoch", "test accuracy"], &accuracy)?;
    let thresholds: Vec<Series> = runs
        .iter()
        .filter(|run| !run.fixed)
        .map(|run| series(&run.name, run.thresholds.iter().copied(), 0.0))
        .collect();
    plot::lines(&at("thresholds.svg"), [&title, "step", "clipping threshold C"], &thresholds)?;
    files::write_json(&at("adaptive-clipping.json"), &runs)?;
    println!("files: {}", options.output.display());
    Ok(runs)
}

fn check(options: &AdaptiveClippingOptions) -> Result<(), TrainError> {
    checks::at_least_one([
        ("--epochs", options.epochs),
        ("--batch-size", options.batch_size),
        ("--physical-batch-size", options.physical_batch_size),
        ("--train-size", options.train_size.unwrap_or(1)),
        ("--test-size", options.test_size.unwrap_or(1)),
    ])?;
    checks::countable(options.epochs)?;
    if options.data_dir.is_none() {
        checks::drawable(options.train_size, options.test_size)?;
    }
    let thresholds = options.grid.iter().map(|&norm| ("--grid", norm));
    let starts = options.start.iter().map(|&norm| ("--start", norm));
    let numbers = [("--epsilon", options.epsilon), ("--lr", options.lr)];
    checks::positive(numbers.into_iter().chain(thresholds).chain(starts))
}

/// A compared policy: its name, whether the threshold is fixed, and the policy.
type Contender = (String, bool, Box<dyn Clipping>);

fn policies(options: &AdaptiveClippingOptions) -> Result<Vec<Contender>, TrainError> {
    let mut policies: Vec<Contender> = Vec::new();
    for &threshold in &options.grid {
        let policy = FlatClipping::new(threshold)?;
        policies.push((format!("C = {threshold}"), true, Box::new(policy)));
    }
    for &target in &options.target_quantiles {
        for &start in &options.start {
            let policy = QuantileClipping::new(target)?.with_initial(start)?;
            let policy = policy.with_count_noise(CountNoise::default());
            policies.push((format!("quantile {target} from {start}"), false, Box::new(policy)));
        }
    }
    Ok(policies)
}

fn series(name: &str, values: impl Iterator<Item = f64>, first: f64) -> Series {
    let points = values.enumerate().map(|(index, value)| (first + index as f64, value));
    Series::new(name, points)
}

fn load(options: &AdaptiveClippingOptions) -> Result<Splits<ImageBatcher>, TrainError> {
    let cut = |size: Option<usize>| size.unwrap_or(usize::MAX);
    let splits = match &options.data_dir {
        Some(folder) => mnist::from_folder(folder)?,
        None => digits::splits(
            options.seed,
            options.train_size.unwrap_or(digits::TRAIN_ITEMS),
            options.test_size.unwrap_or(digits::TEST_ITEMS),
        ),
    };
    Ok(splits.truncated(cut(options.train_size), cut(options.test_size)))
}

fn train(
    name: String,
    fixed: bool,
    policy: Box<dyn Clipping>,
    options: &AdaptiveClippingOptions,
    data: &Splits<ImageBatcher>,
    device: &Device,
) -> Result<AdaptiveClippingRun, TrainError> {
    let trained = device.clone().autodiff();
    device.seed(options.seed);
    let mut model = CnnConfig::new().init(&trained);
    let items = data.train.items().len();
    let budget = Budget::new(options.epsilon, options.delta).map_err(burn_dp::DpError::from)?;
    let steps_per_epoch = items.div_ceil(options.batch_size);
    let steps = steps_per_epoch * options.epochs;
    let plan = PrivacyPlanConfig::new(items, options.batch_size as f64)
        .with_steps(steps as u64)
        .with_budget(budget)
        .with_clipping(policy)
        .init()?;
    let batches = plan.batches(data.train.clone(), data.encoder, &trained)?;
    let mut optim = plan.optimizer(momentum_sgd());
    let loss = CrossEntropyLossConfig::new().init();
    let (mut test_accuracy, mut thresholds) = (Vec::new(), Vec::new());
    for (step, batch) in batches.enumerate() {
        let batch = batch?;
        let threshold = optim.thresholds()?.total_norm();
        thresholds.push(threshold);
        optim.backward_batch(&model, &batch, options.physical_batch_size, |model, images| {
            loss.forward(model.forward(images.inputs), images.targets)
        })?;
        let left = (steps - step) as f64 / steps as f64;
        let lr = options.lr * left / threshold;
        model = optim.step(lr, model, batch).map_err(burn_dp::DpError::from)?;
        if (step + 1).is_multiple_of(steps_per_epoch) {
            test_accuracy.push(Evaluation::of(&model, &data.encoder, &data.test, device).accuracy);
        }
    }
    Ok(AdaptiveClippingRun {
        name,
        fixed,
        epsilon: optim.privacy_spent(options.delta)?.upper,
        noise_multiplier: optim.plan().noise_multiplier(),
        test_accuracy,
        thresholds,
    })
}
