//! Training runs with a planted mistake, and the same runs without it.
//!
//! No mistake is a switch in the library: in each of them, this program combines public parts
//! incorrectly, so no build of the library contains it. Most run one plan and claim the ε of
//! another.
//!
//! Length: all mistakes in one file, because each is a few lines over the same training runs.

use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::audit::{AuditScores, CanaryCoins};
use burn_dp::clipping::{CountNoise, FlatClipping, GroupedClipping, QuantileClipping};
use burn_dp::model::ParameterGroups;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::random::InsecureSeed;
use serde::Serialize;

use super::probe::{ObservedRun, Probe, over_layers};

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bug {
    /// The noise is too small to hide anything.
    NoNoise,
    /// The threshold is ten times the threshold for which the noise was calibrated.
    NoClipping,
    /// L layers are clipped separately, and each gets the noise of a separate release.
    NoiseShortByRootOfLayers,
    /// Two steps have the same noise.
    SameNoiseTwice,
    /// Every unit takes part in every step, but the accountant is told of a Poisson sample.
    NoSampling,
    /// The noisy sum is divided by the number of drawn units instead of the expected number.
    DivisionByDrawnSize,
    /// The counts of adaptive clipping are released but are not in the ledger.
    CountsOutsideOfLedger,
    /// Two items of the data set belong to one unit.
    OneUnitTwice,
    /// One layer is released without noise.
    ParameterWithoutNoise,
}

impl Bug {
    /// All mistakes.
    pub const ALL: [Self; 9] = [
        Self::NoNoise,
        Self::NoClipping,
        Self::NoiseShortByRootOfLayers,
        Self::SameNoiseTwice,
        Self::NoSampling,
        Self::DivisionByDrawnSize,
        Self::CountsOutsideOfLedger,
        Self::OneUnitTwice,
        Self::ParameterWithoutNoise,
    ];
}

/// The scores of an audited training, and the ε that it claims.
pub(super) struct Audited {
    pub(super) epsilon: f64,
    pub(super) scores: AuditScores,
}

/// The number of canaries in one run, or the number of runs with one canary each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) canaries: usize,
    pub(super) trials: usize,
}

/// δ of all claims.
pub(super) const DELTA: f64 = 1e-5;
/// Clipping threshold, the default of a plan.
const C: f64 = 1.0;
/// Noise multiplier and steps of the full-batch runs: μ = √4 / 1 = 2.
const SIGMA: f64 = 1.0;
const STEPS: u64 = 4;
const LAYERS: usize = 4;
/// Noise that hides nothing.
const ALMOST_NO_NOISE: f64 = 1e-6;
/// The training run with sampling.
const SAMPLED_STEPS: u64 = 40;
const SAMPLED_SIGMA: f64 = 1.0;
const PROBABILITY: f64 = 0.1;
/// Number of ordinary units in the runs with one canary.
const OTHERS: usize = 20;
/// Noise of the counts: a count has sensitivity 1/2.
const COUNT_STD: f64 = 0.25;

/// Audits a training run without a mistake: full batch, flat clipping, gradient canaries.
pub(super) fn honest(size: Size, seed: u64) -> Result<Audited, DpError> {
    let plan = full_batch(size.canaries, seed);
    let scores = one_run(plan.clone(), size, seed, |canary| vec![canary], C)?;
    Ok(Audited { epsilon: epsilon(plan)?, scores })
}

/// Audits a training run with the mistake, or the same run without it.
pub(super) fn audit(bug: Bug, planted: bool, size: Size, seed: u64) -> Result<Audited, DpError> {
    let canaries = size.canaries;
    let claim = full_batch(canaries, seed);
    let alone = |canary| vec![canary];
    let (claim, scores) = match bug {
        Bug::NoNoise => {
            let run = if planted { with_sigma(&claim, ALMOST_NO_NOISE) } else { claim.clone() };
            (claim, one_run(run, size, seed, alone, C)?)
        }
        Bug::NoClipping => {
            // The noise stays SIGMA · C.
            let factor = if planted { 10.0 } else { 1.0 };
            let run = with_sigma(&claim, SIGMA / factor);
            let run = run.with_clipping(FlatClipping::new(factor * C)?);
            (claim, one_run(run, size, seed, alone, 10.0 * C)?)
        }
        Bug::NoiseShortByRootOfLayers => {
            let groups = ParameterGroups::per_layer(&probe(canaries, LAYERS))?;
            let claim = claim.with_clipping(GroupedClipping::equal(groups, C)?);
            let short = SIGMA / (LAYERS as f64).sqrt();
            let run = if planted { with_sigma(&claim, short) } else { claim.clone() };
            (claim, one_run(run, size, seed, alone, C)?)
        }
        Bug::SameNoiseTwice => (claim, differences(size, seed, planted)?),
        Bug::NoSampling => {
            let plan = |batch: f64| {
                PrivacyPlanConfig::new(canaries, batch)
                    .with_steps(SAMPLED_STEPS)
                    .with_noise_multiplier(SAMPLED_SIGMA)
                    .with_insecure_seed(InsecureSeed(seed))
            };
            let claim = plan(PROBABILITY * canaries as f64);
            let run = if planted { plan(canaries as f64) } else { claim.clone() };
            (claim, one_run(run, size, seed, alone, C)?)
        }
        Bug::DivisionByDrawnSize => (claim, divided_sums(size, seed, planted)?),
        Bug::CountsOutsideOfLedger => {
            // Sum and counts together; the faulty claim covers only the sum.
            let joint = (SIGMA.powi(-2) + (2.0 * COUNT_STD).powi(-2)).sqrt().recip();
            let honest = if planted { claim } else { with_sigma(&claim, joint) };
            (honest, counted_sums(size, seed, joint)?)
        }
        Bug::OneUnitTwice => {
            // Items i and i + canaries: the same record, or a record without gradient.
            let claim = full_batch(2 * canaries, seed);
            let items =
                |canary| if planted { vec![canary, canary + canaries] } else { vec![canary] };
            (claim.clone(), one_run(claim, size, seed, items, C)?)
        }
        Bug::ParameterWithoutNoise => {
            let scores =
                if planted { last_layer_alone(size, seed)? } else { honest(size, seed)?.scores };
            (claim, scores)
        }
    };
    Ok(Audited { epsilon: epsilon(claim)?, scores })
}

fn probe(width: usize, layers: usize) -> Probe {
    Probe::new(width, layers, &Device::flex().autodiff())
}

/// The plan of a full-batch run.
fn full_batch(units: usize, seed: u64) -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(units, units as f64)
        .with_steps(STEPS)
        .with_noise_multiplier(SIGMA)
        .with_insecure_seed(InsecureSeed(seed))
}

fn with_sigma(plan: &PrivacyPlanConfig, sigma: f64) -> PrivacyPlanConfig {
    plan.clone().with_noise_multiplier(sigma)
}

/// Returns the ε that a plan claims. The seeds are known only to this program.
fn epsilon(plan: PrivacyPlanConfig) -> Result<f64, DpError> {
    plan.init()?.epsilon_at_end(DELTA)
}

/// Coins that do not follow from the noise.
fn coins(count: usize, seed: u64) -> CanaryCoins {
    CanaryCoins::from_seed(count, InsecureSeed(seed.wrapping_add(0x00c0_1115)))
}

/// Returns the input whose gradient has this norm over all layers, at the place of a canary.
fn input(canary: usize, norm: f64, layers: usize) -> Vec<(usize, f64)> {
    vec![(canary, norm / (layers as f64).sqrt())]
}

/// Trains once with all canaries, each of which owns some `items` of the data set. An excluded
/// canary has no gradient.
fn one_run(
    plan: PrivacyPlanConfig,
    size: Size,
    seed: u64,
    items: impl Fn(usize) -> Vec<usize>,
    norm: f64,
) -> Result<AuditScores, DpError> {
    let canaries = size.canaries;
    let coins = coins(canaries, seed);
    let plan = plan.init()?;
    let (units, steps) = (plan.dataset_size(), plan.steps());
    let mut owner = vec![None; units];
    for canary in (0..canaries).filter(|&canary| coins.is_included(canary)) {
        items(canary).into_iter().for_each(|item| owner[item] = Some(canary));
    }
    let mut run = ObservedRun::new(plan, &probe(canaries, LAYERS), canaries)?;
    let mut scores = vec![0.0; canaries];
    for _ in 0..steps {
        let (sums, _) = run.step(|item| match owner[item] {
            Some(canary) => input(canary, norm, LAYERS),
            None => Vec::new(),
        })?;
        add(&mut scores, &over_layers(&sums), 1.0);
    }
    coins.scores(&scores)
}

fn add(scores: &mut [f64], values: &[f64], factor: f64) {
    scores.iter_mut().zip(values).for_each(|(score, value)| *score += factor * value);
}

/// Runs pairs of steps in which the gradient of a canary changes its sign; the score is the
/// difference. With the mistake both steps of a pair have the same noise.
fn differences(size: Size, seed: u64, planted: bool) -> Result<AuditScores, DpError> {
    let canaries = size.canaries;
    let coins = coins(canaries, seed);
    let model = probe(canaries, LAYERS);
    let mut scores = vec![0.0; canaries];
    for pair in 0..STEPS / 2 {
        for (sign, offset) in [(1.0, 0), (-1.0, u64::from(!planted))] {
            let plan = full_batch(canaries, 1000 * seed + 2 * pair + offset).with_steps(1);
            let mut run = ObservedRun::new(plan.init()?, &model, canaries)?;
            let (sums, _) = run.step(|canary| {
                if coins.is_included(canary) { input(canary, sign * C, LAYERS) } else { Vec::new() }
            })?;
            add(&mut scores, &over_layers(&sums), sign);
        }
    }
    coins.scores(&scores)
}

/// Returns the scores of the last layer from a run in which it gets no noise: the released sums of
/// this layer come from a run almost without noise.
fn last_layer_alone(size: Size, seed: u64) -> Result<AuditScores, DpError> {
    let canaries = size.canaries;
    let coins = coins(canaries, seed);
    let model = probe(canaries, LAYERS);
    let claim = full_batch(canaries, seed);
    let mut without_noise =
        ObservedRun::new(with_sigma(&claim, ALMOST_NO_NOISE).init()?, &model, canaries)?;
    let mut run = ObservedRun::new(claim.init()?, &model, canaries)?;
    let mut scores = vec![0.0; canaries];
    for _ in 0..STEPS {
        let units = |canary| {
            if coins.is_included(canary) { input(canary, C, LAYERS) } else { Vec::new() }
        };
        let (mut sums, _) = run.step(units)?;
        let (exact, _) = without_noise.step(units)?;
        sums[LAYERS - 1].clone_from(&exact[LAYERS - 1]);
        // The attacker sees all layers, and this one reveals everything.
        add(&mut scores, &sums[LAYERS - 1], 1.0);
    }
    coins.scores(&scores)
}

/// Trains once for each coin, with ordinary units whose gradients point in one direction and a
/// canary in the opposite one. The score is minus the released sum.
fn divided_sums(size: Size, seed: u64, planted: bool) -> Result<AuditScores, DpError> {
    trials(size, seed, |is_in, seed| {
        let units = OTHERS + usize::from(is_in);
        let mut run = ObservedRun::new(full_batch(units, seed).init()?, &probe(1, 1), 1)?;
        let mut score = 0.0;
        for _ in 0..STEPS {
            let (sums, drawn) = run.step(|unit| vec![(0, if unit == OTHERS { -C } else { C })])?;
            let divisor = if planted { drawn as f64 } else { OTHERS as f64 };
            score -= sums[0][0] * OTHERS as f64 / divisor;
        }
        Ok(score)
    })
}

/// Trains once for each coin with quantile clipping, and a canary with the norm of the threshold
/// among units without gradient. The score weighs sum and count by their noise.
fn counted_sums(size: Size, seed: u64, joint: f64) -> Result<AuditScores, DpError> {
    /// Learning rate of the threshold.
    const RATE: f64 = 0.2;
    /// Target quantile.
    const TARGET: f64 = 0.5;
    trials(size, seed, |is_in, seed| {
        let units = OTHERS + usize::from(is_in);
        let clipping = QuantileClipping::new(TARGET)?
            .with_initial(C)?
            .with_learning_rate(RATE)?
            .with_count_noise(CountNoise::Std(COUNT_STD));
        // One more step, whose threshold reveals the last count.
        let plan = with_sigma(&full_batch(units, seed), joint).with_steps(STEPS + 1);
        let mut run = ObservedRun::new(plan.with_clipping(clipping).init()?, &probe(1, 1), 1)?;
        let mut score = 0.0;
        let mut threshold = run.threshold()?;
        for _ in 0..STEPS {
            // Just below the threshold, even after rounding.
            let norm = 0.999 * threshold;
            let (sums, _) =
                run.step(|unit| if unit == OTHERS { vec![(0, norm)] } else { Vec::new() })?;
            let next = run.threshold()?;
            let fraction = TARGET - (next / threshold).ln() / RATE;
            let count = (fraction - 0.5) * units as f64 - 0.5 * OTHERS as f64;
            let sum = sums[0][0] / threshold;
            score += sum / SIGMA.powi(2) + 0.5 * count / COUNT_STD.powi(2);
            threshold = next;
        }
        Ok(score)
    })
}

/// Returns the scores of training runs with one canary each, whose coins are fair.
fn trials(
    size: Size,
    seed: u64,
    train: impl Fn(bool, u64) -> Result<f64, DpError>,
) -> Result<AuditScores, DpError> {
    let coins = coins(size.trials, seed);
    let score = |trial| train(coins.is_included(trial), 100_000 * (seed + 1) + trial as u64);
    let scores = (0..size.trials).map(score).collect::<Result<Vec<_>, _>>()?;
    coins.scores(&scores)
}
