//! The planner's choices against the same choice for every layer.

use std::path::PathBuf;

use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::grads::{DeviceCosts, MemoryBound, PrivateBackward};
use burn_dp_examples::training::{BackendName, TrainError, checks, device, files, typed};
use clap::{Args, ValueEnum};
use comfy_table::Table;
use serde::Serialize;

use super::contender::{Contender, LEARNING_RATE, NOISE_MULTIPLIER};
use super::subject::Subject;
use super::timing::{InProcess, medians_and_minima};
use super::{Algorithm, Network, Sizes, device_costs};

/// Median and minimum of the milliseconds of a step.
type Times = (f64, f64);

/// Blocks in which the choices take turns.
const BLOCKS: usize = 5;

/// Options of `bench planner`.
#[derive(Args, Debug, Clone)]
pub struct PlannerOptions {
    /// Networks to train.
    #[arg(long, value_enum, value_delimiter = ',', default_values =
        ["mlp", "cnn", "rnn", "lstm", "transformer-block", "resnet18-cifar"])]
    pub models: Vec<Network>,
    /// Batch size [default: 128, 32 for resnet18-cifar and vgg11, 8 for gpt2-block].
    #[arg(long)]
    pub batch: Option<usize>,
    /// Backend to run on.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// Measured seconds of each choice, in all blocks together.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// File for the figures.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// How a step chooses between ghost norms and instantiated gradients.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The planner with the default costs.
    Planner,
    /// The planner with the measured costs of the device.
    PlannerMeasured,
    /// Ghost norms wherever a rule has them.
    Ghost,
    /// Instantiated gradients, kept until they are clipped.
    Instantiate,
    /// All per-example gradients, instantiated during the pass.
    Materialize,
}

impl Choice {
    fn is_planned(self) -> bool {
        matches!(self, Self::Planner | Self::PlannerMeasured)
    }

    /// Returns the pass that makes this choice.
    ///
    /// # Errors
    ///
    /// Returns no error: all costs are positive.
    fn backward(self, measured: DeviceCosts) -> Result<PrivateBackward, DpError> {
        let pass = PrivateBackward::new();
        // A method that costs next to nothing is always chosen.
        let nothing = f64::MIN_POSITIVE;
        Ok(match self {
            Self::Planner => pass,
            Self::PlannerMeasured => pass.with_device_costs(measured),
            Self::Ghost => pass.with_device_costs(DeviceCosts::new(nothing, 1.0, 0.0)?),
            Self::Instantiate => pass
                .with_device_costs(DeviceCosts::new(1.0, nothing, 0.0)?)
                .with_memory_bound(MemoryBound::bytes(usize::MAX)),
            Self::Materialize => pass.with_materialized_gradients(),
        })
    }
}

/// One choice on one network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannerRow {
    /// Name of the network.
    pub model: String,
    /// Number of images in a step.
    pub batch: usize,
    /// Name of the backend.
    pub backend: String,
    /// Name of the choice.
    pub choice: String,
    /// Median time of a step, in milliseconds.
    pub ms: f64,
    /// Shortest time of a step, in milliseconds.
    pub ms_min: f64,
    /// Median time divided by the shortest median of the choices that are the same for every layer.
    pub ratio: f64,
}

/// The figures of `bench planner`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannerFigures {
    /// The measured costs of the device.
    pub costs: DeviceCosts,
    /// One row for each network and choice.
    pub rows: Vec<PlannerRow>,
}

/// Measures, prints the table, and writes the figures.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, [`TrainError::Privacy`] if a step is
/// rejected, and [`TrainError::Io`] if a file cannot be written.
pub(super) fn run(options: &PlannerOptions) -> Result<(), TrainError> {
    checks::at_least_one(options.batch.map(|batch| ("--batch", batch)))?;
    if !(options.seconds > 0.0 && options.seconds.is_finite()) {
        let reason = format!("must be positive, got {}", options.seconds);
        return Err(TrainError::option("--seconds", reason));
    }
    if let Some(path) = &options.json {
        checks::file("--json", path, None)?;
    }
    let costs = device_costs::measured(options.backend)?;
    let device = device(options.backend)?.autodiff();
    let mut rows = Vec::new();
    for &network in &options.models {
        let batch = options.batch.unwrap_or(network.batch());
        eprintln!("{} with {batch} images", typed(network));
        let subject = Subject { network, sizes: Sizes::default(), is_stock: false };
        let times = times(subject, batch, costs, &device, options.seconds * 1e3)?;
        rows.extend(rated(&times).into_iter().map(|(choice, [ms, ms_min, ratio])| PlannerRow {
            model: typed(network),
            batch,
            backend: typed(options.backend),
            choice: typed(choice),
            ms,
            ms_min,
            ratio,
        }));
    }
    println!("{}", table(&rows));
    match &options.json {
        Some(path) => files::write_json(path, &PlannerFigures { costs, rows }),
        None => Ok(()),
    }
}

/// Returns median, minimum, and median over the shortest median of the fixed choices.
fn rated(times: &[(Choice, Times)]) -> Vec<(Choice, [f64; 3])> {
    let fixed = times.iter().filter(|(choice, _)| !choice.is_planned());
    let best = fixed.map(|(_, (median, _))| *median).fold(f64::INFINITY, f64::min);
    times.iter().map(|&(choice, (ms, least))| (choice, [ms, least, ms / best])).collect()
}

fn table(rows: &[PlannerRow]) -> String {
    let mut table = Table::new();
    table.set_header(["model", "batch", "choice", "ms", "ms min", "over the best fixed choice"]);
    for row in rows {
        table.add_row([
            row.model.clone(),
            row.batch.to_string(),
            row.choice.clone(),
            format!("{:.2}", row.ms),
            format!("{:.2}", row.ms_min),
            format!("{:.2}", row.ratio),
        ]);
    }
    table.to_string()
}

/// Returns median and minimum of the milliseconds of a step with each choice.
fn times(
    subject: Subject,
    batch: usize,
    costs: DeviceCosts,
    device: &Device,
    ms: f64,
) -> Result<Vec<(Choice, Times)>, TrainError> {
    let (model, items) = subject.init(batch, device);
    let player = |&choice: &Choice| {
        let (model, inner, lr) = (model.clone(), AdamConfig::new().init(), LEARNING_RATE);
        let (algorithm, noise) = (Algorithm::BookKeeping, NOISE_MULTIPLIER);
        let contender = Contender::new(algorithm, model, inner, lr, batch, noise, None)?
            .with_backward(choice.backward(costs)?);
        Ok(InProcess { contender, batch: items.clone(), device })
    };
    let choices = Choice::value_variants();
    let players: Result<Vec<_>, TrainError> = choices.iter().map(player).collect();
    let times = medians_and_minima(&mut players?, BLOCKS, ms)?;
    Ok(choices.iter().copied().zip(times).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn options(models: Vec<Network>, json: Option<PathBuf>) -> PlannerOptions {
        PlannerOptions { models, batch: Some(4), backend: BackendName::Flex, seconds: 0.01, json }
    }

    #[test]
    fn every_choice_is_measured_and_compared_with_the_best_fixed_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("planner.json");
        run(&options(vec![Network::Mlp], Some(path.clone()))).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(figures["costs"]["seconds_per_byte"].as_f64().unwrap() > 0.0);
        let rows = figures["rows"].as_array().unwrap();
        assert_eq!(rows.len(), Choice::value_variants().len());
        let fixed = |row: &&serde_json::Value| !row["choice"].as_str().unwrap().contains("planner");
        let ratios = rows.iter().filter(fixed).map(|row| row["ratio"].as_f64().unwrap());
        assert_eq!(ratios.fold(f64::INFINITY, f64::min), 1.0);
    }

    #[test]
    fn the_fixed_choices_are_the_same_for_every_layer() {
        use burn::module::Module;
        use burn::nn::{Linear, LinearConfig};
        use burn::tensor::Tensor;
        use burn_dp::grads::{NormMethod, explain};
        use burn_dp::nn::{IntoPrivate, Private};

        #[derive(Module, Debug)]
        struct Layers {
            wide: Private<Linear>,
            narrow: Private<Linear>,
        }

        let device = Device::flex().autodiff();
        let layer = |i, o| LinearConfig::new(i, o).with_bias(false).init(&device).private();
        // One prefers the ghost norm, the other the gradient.
        let model = Layers { wide: layer(400, 300), narrow: layer(300, 40) };
        let methods = |choice: Choice| {
            let x = Tensor::<3>::ones([4, 30, 400], &device);
            let output = model.narrow.forward(model.wide.forward(x).tanh());
            let pass = choice.backward(DeviceCosts::default()).unwrap();
            let losses = output.sum_dim(2).sum_dim(1).reshape([4]);
            let explanation = explain(&pass, losses, &model).unwrap();
            let chosen = explanation.parameters().iter().map(|row| row.method.unwrap());
            chosen.collect::<Vec<_>>()
        };
        assert_eq!(methods(Choice::Ghost), [NormMethod::Ghost; 2]);
        assert_eq!(methods(Choice::Instantiate), [NormMethod::Instantiate; 2]);
        assert_eq!(methods(Choice::Materialize), [NormMethod::Instantiate; 2]);
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let error = run(&PlannerOptions { batch: Some(0), ..options(vec![], None) }).unwrap_err();
        assert!(error.to_string().contains("--batch must be at least 1"), "{error}");
        let error = run(&PlannerOptions { seconds: 0.0, ..options(vec![], None) }).unwrap_err();
        assert!(error.to_string().contains("--seconds must be positive"), "{error}");
    }
}
