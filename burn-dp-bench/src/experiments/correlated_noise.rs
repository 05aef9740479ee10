//! The error of prefix sums under correlated noise, and accuracy at equal ε.
//!
//! Length: two experiments with one list of strategies and verdicts each.
//!
//! # References
//!
//! - S. Denisov et al., "Improved Differential Privacy for SGD via Optimal Private Linear Operators
//!   on Adaptive Streams", 2022.
//! - C. A. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization", 2023.
//! - K. Dvijotham et al., "Efficient and Near-Optimal Noise Generation for Streaming Differential
//!   Privacy", 2024.

use std::collections::BTreeSet;

use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp_accountant::correlated_noise::{
    Objective, Strategy, StrategyFamily, StrategySearch, Workload,
};
use burn_dp_accountant::{AccountantError, Budget};
use burn_dp_examples::data::{ImageBatcher, Splits};
use burn_dp_examples::training::TrainError;

use super::correlated_noise_peers::{PEER_SEARCHES, PeerSearch};
use super::correlated_noise_verdicts::{BANDED, BUFFERED, POISSON, SHUFFLED};
use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::trial::{MOMENTUM, Trial, images_of_seeds, momentum_sgd};
use super::verdict::Verdict;

pub(super) const ERROR: &str = "correlated-noise";
pub(super) const ACCURACY: &str = "correlated-noise-accuracy";

/// Root of the largest squared error of a prefix sum times the sensitivity of one participation,
/// of the optimal Toeplitz strategy (jax_privacy 2.0.0 and mpmath).
const PEER: [(u64, f64); 4] =
    [(16, 1.9438788472), (128, 2.6101038648), (1_000, 3.2650030807), (10_000, 3.9980102911)];

/// Number of steps at which verdicts compare.
const COMPARED: u64 = 1_000;

/// Numbers of steps of the dense strategies.
const DENSE_STEPS: [u64; 6] = [2, 4, 8, 16, 32, 64];

/// Maximum number of steps in a search for a strategy with a banded inverse.
const INVERSE_STEPS: u64 = 1_000;

/// A strategy for any number of steps, and its name.
type Named = (&'static str, fn(u64) -> Made);

type Made = Result<Strategy, AccountantError>;

/// The compared strategies, by name.
fn strategies() -> Vec<Named> {
    vec![
        ("independent", Strategy::identity),
        ("tree", Strategy::tree),
        ("banded inverse square root, 4", |steps| Strategy::banded_inverse_square_root(steps, 4)),
        ("banded inverse square root, 32", |steps| {
            Strategy::banded_inverse_square_root(steps, 32.min(steps))
        }),
        ("banded inverse, optimized, 4", |steps| search(steps)?.banded_inverse(4)),
        ("banded, 16", |steps| search(steps)?.banded_toeplitz(16.min(steps))),
        ("buffered, 4", |steps| search(steps)?.buffered(4)),
        ("optimal Toeplitz", Strategy::optimal_toeplitz),
    ]
}

fn search(steps: u64) -> Result<StrategySearch, AccountantError> {
    Ok(StrategySearch::new(steps)?.with_objective(Objective::Max))
}

/// The error of every strategy against the number of steps.
pub(super) fn errors(measured: &mut Measured) -> Result<Findings, TrainError> {
    let steps: Vec<u64> = match measured.quick() {
        true => PEER.iter().map(|(steps, _)| *steps).collect(),
        false => PEER.iter().map(|(steps, _)| *steps).chain([100_000]).collect(),
    };
    let strategies = strategies();
    let steps_of = |name: &str| -> Vec<u64> {
        match name.starts_with("banded inverse, optimized") {
            true => steps.iter().copied().filter(|&steps| steps <= INVERSE_STEPS).collect(),
            false => steps.clone(),
        }
    };
    let mut lines: Vec<(Named, Vec<u64>)> =
        strategies.into_iter().map(|named| (named, steps_of(named.0))).collect();
    lines.push((("dense", |steps| search(steps)?.run(StrategyFamily::Dense)), DENSE_STEPS.into()));
    let points = lines.iter().map(|(_, steps)| steps.len()).sum::<usize>();
    measured.expect(points + PEER_SEARCHES.len());
    let mut series = Vec::new();
    for ((name, strategy), steps) in lines {
        let mut points = Vec::new();
        for steps in steps {
            let loss =
                measured.measure(&format!("{name}, {steps} steps"), |_| loss(strategy(steps)))?;
            points.push((steps as f64, loss));
        }
        series.push(FigureSeries::exact(name, points));
    }
    let mut ratios: Vec<(&str, f64)> = Vec::new();
    for peer in &PEER_SEARCHES {
        let name = peer.name();
        let label = format!("search of jax_privacy: {:?}, {} steps", peer.family, peer.steps);
        let here = |_: &Device| Ok(peer.loss_here().map_err(DpError::from)?);
        let ratio = measured.measure(&label, here)? / peer.loss;
        match ratios.iter_mut().find(|(known, _)| *known == name) {
            Some((_, largest)) => *largest = largest.max(ratio),
            None => ratios.push((name, ratio)),
        }
    }
    // For one participation, like the other lines.
    for (name, _) in ratios.iter().filter(|(name, _)| *name != "banded inverse") {
        let peers = PEER_SEARCHES.iter().filter(|peer| peer.name() == *name);
        let points = peers.map(|peer| (peer.steps as f64, peer.loss.sqrt()));
        series.push(FigureSeries::exact(format!("{name}, jax_privacy"), points));
    }
    series.push(FigureSeries::exact(
        "optimal Toeplitz, jax_privacy",
        PEER.map(|(steps, loss)| (steps as f64, loss)),
    ));
    Ok(Findings {
        figure: "Correlated noise: error against the number of steps".into(),
        setting: "The largest root mean squared error of a prefix sum at a noise multiplier of 1, \
                  if a unit takes part once."
            .into(),
        labels: ["Error of prefix sums", "steps", "largest error"].map(String::from),
        series,
        facts: ratios.into_iter().map(|(name, ratio)| (ratio_name(name), ratio)).collect(),
    })
}

/// Returns the name of the fact with the ratio of our loss to the loss of the peer.
fn ratio_name(search: &str) -> String {
    format!("{search} over jax_privacy")
}

/// Compares the errors at [`COMPARED`] steps, and our results with the peer's.
pub(super) fn judge_errors(figure: &Figure) -> Vec<Verdict> {
    let at = |name: &str, steps: u64| figure.at(name, steps as f64).y;
    let difference = PEER
        .iter()
        .map(|&(steps, peer)| (at("optimal Toeplitz", steps) / peer - 1.0).abs())
        .fold(0.0, f64::max);
    let [independent, tree, best, buffered] =
        ["independent", "tree", "optimal Toeplitz", "buffered, 4"].map(|name| at(name, COMPARED));
    let searches = PEER_SEARCHES.iter().map(PeerSearch::name).collect::<BTreeSet<_>>();
    let ratio = |name| (name, figure.fact(&ratio_name(name)));
    let ratios: Vec<(&str, f64)> = searches.into_iter().map(ratio).collect();
    vec![
        Verdict::new(
            format!(
                "Correlated noise has a smaller error than independent noise at {COMPARED} steps."
            ),
            best < 0.2 * independent && tree < 0.5 * independent,
            [("independent", independent), ("tree", tree), ("optimal Toeplitz", best)],
        ),
        Verdict::new(
            format!(
                "A buffered strategy, which keeps four values, is within 3 % of the optimal \
                 Toeplitz strategy, which keeps {COMPARED}, at {COMPARED} steps."
            ),
            buffered < 1.03 * best,
            [("four buffers", buffered), ("optimal Toeplitz", best)],
        ),
        Verdict::new(
            "The optimal Toeplitz strategy has the error that jax_privacy reports.",
            difference < 1e-9,
            [("largest relative difference", difference)],
        ),
        Verdict::new(
            "Every search finds the loss that jax_privacy finds at its own steps and sizes, or a \
             smaller one.",
            ratios.iter().all(|(_, ratio)| *ratio <= 1.0 + 1e-6),
            ratios,
        ),
    ]
}

/// Returns the largest error of a prefix sum times the sensitivity of one participation.
fn loss(strategy: Made) -> Result<f64, TrainError> {
    let strategy = strategy.map_err(DpError::from)?;
    let workload = Workload::prefix_sums();
    let errors = strategy.squared_errors(&workload).map_err(DpError::from)?;
    let sensitivity = strategy.sensitivity(1, 1).map_err(DpError::from)?;
    Ok(errors.max().sqrt() * sensitivity)
}

/// Images, batch size, and passes over the data of a training run.
const QUICK: ([usize; 2], usize, u64) = ([8_000, 2_000], 250, 4);
const PAPER: ([usize; 2], usize, u64) = ([60_000, 10_000], 500, 20);
const DELTA: f64 = 1e-5;
const EPSILONS: [f64; 3] = [1.0, 4.0, 16.0];
const QUICK_EPSILONS: [f64; 2] = [1.0, 16.0];

/// Bands of the strategy, and parts of the data, with cyclic Poisson sampling.
const BANDS: u64 = 8;

/// The compared training runs: sampling and strategy.
fn trainings(
    epochs: u64,
    epoch: u64,
) -> Result<Vec<(&'static str, SamplingScheme, Strategy)>, DpError> {
    let steps = epochs * epoch;
    let workload = Workload::prefix_sums().with_momentum(MOMENTUM)?;
    Ok(vec![
        (POISSON, SamplingScheme::Poisson, Strategy::identity(steps)?),
        (SHUFFLED, SamplingScheme::ShuffledOnce, Strategy::identity(steps)?),
        (
            BANDED,
            SamplingScheme::CyclicPoisson { parts: BANDS as usize },
            StrategySearch::new(steps)?.with_workload(workload.clone())?.banded_toeplitz(BANDS)?,
        ),
        (
            BUFFERED,
            SamplingScheme::ShuffledOnce,
            StrategySearch::new(steps)?
                .with_participation(epochs, epoch)?
                .with_workload(workload)?
                .buffered(3)?,
        ),
        ("tree, shuffled once", SamplingScheme::ShuffledOnce, Strategy::tree(steps)?),
    ])
}

/// Accuracy at equal ε with each strategy.
pub(super) fn accuracy(measured: &mut Measured) -> Result<Findings, TrainError> {
    let (sizes, batch, epochs) = if measured.quick() { QUICK } else { PAPER };
    let epsilons = if measured.quick() { &QUICK_EPSILONS[..] } else { &EPSILONS[..] };
    let epoch = (sizes[0] / batch) as u64;
    let trainings = trainings(epochs, epoch)?;
    let data = images_of_seeds(measured, sizes)?;
    measured.expect(trainings.len() * epsilons.len() * data.len());
    let mut series = Vec::new();
    for (name, scheme, strategy) in &trainings {
        let mut points = Vec::new();
        for &epsilon in epsilons {
            let mut accuracies = Vec::new();
            for (seed, data) in &data {
                let run = |device: &Device| {
                    train((*scheme, strategy), (epsilon, epochs, batch), data, *seed, device)
                };
                let label =
                    format!("{name}, epsilon {epsilon}, {epochs} epochs of {sizes:?}, {seed}");
                accuracies.push(measured.measure(&label, run)?);
            }
            points.extend(FigurePoint::of(epsilon, &accuracies));
        }
        series.push(FigureSeries { name: (*name).into(), points });
    }
    Ok(Findings {
        figure: "Correlated noise: accuracy at equal ε".into(),
        setting: format!(
            "A CNN, {} images of {}, {epochs} epochs of {epoch} steps, SGD with momentum 0.9, δ = \
             {DELTA:e}, {} seeds. \"Shuffled once\": a unit takes part every {epoch} steps, \
             without amplification by sampling.",
            sizes[0],
            measured.images_name(),
            data.len()
        ),
        labels: ["Correlated noise on images", "ε", "test accuracy"].map(String::from),
        series,
        facts: Vec::new(),
    })
}

fn train(
    (scheme, strategy): (SamplingScheme, &Strategy),
    (epsilon, epochs, batch): (f64, u64, usize),
    data: &Splits<ImageBatcher>,
    seed: u64,
    device: &Device,
) -> Result<f64, TrainError> {
    let items = data.train.items().len();
    let steps = epochs * (items / batch) as u64;
    let plan = PrivacyPlanConfig::new(items, batch as f64)
        .with_steps(steps)
        .with_budget(Budget::new(epsilon, DELTA).map_err(DpError::from)?)
        .with_sampling(scheme);
    let plan = match scheme {
        SamplingScheme::Poisson => plan,
        _ => plan.with_correlated_noise(strategy.clone()),
    };
    let lr = move |step: u64, _: f64| 0.3 * (steps - step) as f64 / steps as f64;
    Ok(Trial::new(plan, momentum_sgd(), &lr).run(data, seed, device)?.accuracy)
}
