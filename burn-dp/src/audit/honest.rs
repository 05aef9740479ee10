//! Audits of training runs without a mistake: what is measured stays below their ε.
//!
//! Each audit notices mistakes in the steps of the library. `xtask/guards` plants them, one at a
//! time: no noise, no clipping, a layer without noise, noise that is too small for several groups,
//! the same noise in each step, sampling that is not, units that are added twice, and counts that
//! are not accounted for.

#![allow(clippy::unwrap_used)]

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};

use super::{Audit, AuditScores, CanaryCoins};
use crate::clipping::{CountNoise, GroupedClipping, QuantileClipping};
use crate::model::ParameterGroups;
use crate::nn::{IntoPrivate, Private};
use crate::optim::{DpOptimizer, PrivacyPlanConfig};
use crate::random::InsecureSeed;
use crate::sampling::Sampler;

const LAYERS: usize = 4;
const STEPS: u64 = 4;
const CANARIES: usize = 600;
const DELTA: f64 = 1e-5;

/// A sum of linear layers with one output each: the gradient of a unit in every layer is its input.
#[derive(Module, Debug)]
struct Layers {
    layers: Vec<Private<Linear>>,
}

impl Layers {
    fn new(width: usize, layers: usize) -> Self {
        let device = Device::flex().autodiff();
        let layer = |_| LinearConfig::new(width, 1).with_bias(false).init(&device).private();
        Self { layers: (0..layers).map(layer).collect() }
    }

    fn losses(&self, x: Tensor<2>) -> Tensor<1> {
        let outputs = self.layers.iter().map(|layer| layer.forward(x.clone()));
        outputs.reduce(|sum, output| sum + output).unwrap().reshape([-1])
    }

    fn weights(&self) -> Vec<Vec<f32>> {
        let weights = self.layers.iter().map(|layer| layer.inner.weight.val().into_data());
        weights.map(|weight| weight.try_into_vec().unwrap()).collect()
    }
}

/// The full batch, noise of the sensitivity: μ = 2.
fn plan(units: usize, seed: u64) -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(units, units as f64)
        .with_steps(STEPS)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(seed))
}

/// A run whose results an attacker sees.
struct Run {
    model: Layers,
    optim: DpOptimizer,
    sampler: Box<dyn Sampler>,
    width: usize,
    /// Whether the loop adds the units of a step a second time, and ignores the error.
    repeats: bool,
}

impl Run {
    fn new(plan: PrivacyPlanConfig, width: usize, layers: usize) -> Self {
        let plan = plan.init().unwrap();
        let sampler = plan.sampler().unwrap();
        let optim = plan.optimizer(SgdConfig::new().init()).with_independence_check(false);
        Self { model: Layers::new(width, layers), optim, sampler, width, repeats: false }
    }

    fn epsilon(&self) -> f64 {
        self.optim.plan().epsilon_at_end(DELTA).unwrap()
    }

    /// Makes a step and returns the released sum of each layer. `input` returns the place and the
    /// value of the input of a unit.
    fn step(&mut self, input: impl Fn(usize) -> (usize, f64)) -> Vec<Vec<f64>> {
        let (width, model) = (self.width, self.model.clone());
        let draw = self.sampler.draw(self.optim.next_step()).unwrap();
        let losses = |model: &Layers, units: Vec<usize>| {
            let mut rows = vec![0f32; units.len() * width];
            for (row, &unit) in rows.chunks_mut(width).zip(&units) {
                let (place, value) = input(unit);
                row[place] = value as f32;
            }
            let device = Device::flex().autodiff();
            let rows = TensorData::new(rows, [units.len(), width]);
            model.losses(Tensor::from_data(rows, &device))
        };
        self.optim.backward(&model, &draw, losses).unwrap();
        if self.repeats {
            let _ = self.optim.backward(&model, &draw, losses);
        }
        self.model = self.optim.step(1.0, model.clone(), draw).map_err(|e| e.to_string()).unwrap();
        let batch = self.optim.plan().expected_batch_size();
        let change = |(before, after): (&f32, &f32)| f64::from(before - after) * batch;
        let pairs = model.weights().into_iter().zip(self.model.weights());
        pairs.map(|(before, after)| before.iter().zip(&after).map(change).collect()).collect()
    }
}

/// Returns the coins of the canaries, and the sums of every layer over the steps of a run. The
/// gradient of an included canary has the norm `norm` times `sign` of the step.
fn train(mut run: Run, norm: f64, sign: impl Fn(u64) -> f64) -> (CanaryCoins, Vec<Vec<f64>>, f64) {
    let coins = CanaryCoins::from_seed(CANARIES, InsecureSeed(77));
    let mut sums = vec![vec![0.0; CANARIES]; LAYERS];
    for step in 0..run.optim.plan().steps() {
        let value = sign(step) * norm / (LAYERS as f64).sqrt();
        let input = |unit| (unit, if coins.is_included(unit) { value } else { 0.0 });
        for (sums, released) in sums.iter_mut().zip(run.step(input)) {
            sums.iter_mut().zip(released).for_each(|(sum, value)| *sum += sign(step) * value);
        }
    }
    (coins, sums, run.epsilon())
}

/// A run with a place for each canary in each layer.
fn run(plan: PrivacyPlanConfig) -> Run {
    Run::new(plan, CANARIES, LAYERS)
}

fn of_all_layers(coins: &CanaryCoins, sums: &[Vec<f64>]) -> AuditScores {
    let score = |canary: usize| sums.iter().map(|layer| layer[canary]).sum();
    coins.scores(&(0..CANARIES).map(score).collect::<Vec<f64>>()).unwrap()
}

fn gdp(scores: &AuditScores) -> f64 {
    Audit::new(scores, DELTA).unwrap().with_significance(1e-3).unwrap().gdp().epsilon_lower
}

#[test]
fn an_audit_of_clipped_and_noisy_sums_stays_below_their_epsilon() {
    // Ten times the threshold.
    let (coins, sums, epsilon) = train(run(plan(CANARIES, 1)), 10.0, |_| 1.0);
    let lower = gdp(&of_all_layers(&coins, &sums));
    assert!(lower <= epsilon && lower > epsilon / 3.0, "{lower} {epsilon}");
    for (layer, sums) in sums.iter().enumerate() {
        let lower = gdp(&coins.scores(sums).unwrap());
        assert!(lower <= epsilon, "layer {layer}: {lower} {epsilon}");
    }
}

#[test]
fn an_audit_of_layers_in_groups_stays_below_their_epsilon() {
    let groups = ParameterGroups::per_layer(&Layers::new(CANARIES, LAYERS)).unwrap();
    let plan = plan(CANARIES, 2).with_clipping(GroupedClipping::equal(groups, 1.0).unwrap());
    let (coins, sums, epsilon) = train(run(plan), 10.0, |_| 1.0);
    let lower = gdp(&of_all_layers(&coins, &sums));
    assert!(lower <= epsilon && lower > epsilon / 3.0, "{lower} {epsilon}");
}

#[test]
fn an_audit_of_differences_between_steps_stays_below_their_epsilon() {
    let sign = |step: u64| if step.is_multiple_of(2) { 1.0 } else { -1.0 };
    let (coins, sums, epsilon) = train(run(plan(CANARIES, 3)), 1.0, sign);
    let lower = gdp(&of_all_layers(&coins, &sums));
    assert!(lower <= epsilon && lower > epsilon / 3.0, "{lower} {epsilon}");
}

#[test]
fn an_audit_of_sampled_units_stays_below_their_epsilon() {
    let plan = PrivacyPlanConfig::new(CANARIES, 0.1 * CANARIES as f64)
        .with_steps(40)
        .with_noise_multiplier(2.0)
        .with_insecure_seed(InsecureSeed(4));
    let (coins, sums, epsilon) = train(run(plan), 1.0, |_| 1.0);
    let scores = of_all_layers(&coins, &sums);
    let audit = Audit::new(&scores, DELTA).unwrap().with_significance(1e-3).unwrap();
    let lower = audit.one_run().epsilon_lower;
    assert!(lower <= epsilon, "{lower} {epsilon}");
}

#[test]
fn an_audit_of_units_that_a_loop_adds_twice_stays_below_their_epsilon() {
    let run = Run { repeats: true, ..run(plan(CANARIES, 5)) };
    let (coins, sums, epsilon) = train(run, 1.0, |_| 1.0);
    let lower = gdp(&of_all_layers(&coins, &sums));
    assert!(lower <= epsilon && lower > epsilon / 3.0, "{lower} {epsilon}");
}

/// Number of units without a coin in the runs with one canary.
const OTHERS: usize = 20;

/// Returns the scores of runs with one canary each.
fn trials(score: impl Fn(bool, u64) -> f64) -> AuditScores {
    let coins = CanaryCoins::from_seed(300, InsecureSeed(78));
    let scores = (0..300).map(|trial| score(coins.is_included(trial), 1000 + trial as u64));
    coins.scores(&scores.collect::<Vec<f64>>()).unwrap()
}

#[test]
fn an_audit_of_counts_stays_below_their_epsilon() {
    const RATE: f64 = 0.2;
    const TARGET: f64 = 0.5;
    const COUNT_STD: f64 = 0.25;
    let config = |is_in, seed| {
        let clipping = QuantileClipping::new(TARGET).unwrap().with_initial(1.0).unwrap();
        let clipping = clipping.with_learning_rate(RATE).unwrap();
        let clipping = clipping.with_count_noise(CountNoise::Std(COUNT_STD));
        // Sum and counts together; the sum alone has a noise multiplier of 1.
        let joint = (1.0 + (2.0 * COUNT_STD).powi(-2)).sqrt().recip();
        // One more step, whose threshold reveals the last count.
        let plan = plan(OTHERS + usize::from(is_in), seed).with_steps(STEPS + 1);
        plan.with_noise_multiplier(joint).with_clipping(clipping)
    };
    let epsilon = Run::new(config(true, 0), 1, 1).epsilon();
    let scores = trials(|is_in, seed| {
        let mut run = Run::new(config(is_in, seed), 1, 1);
        let units = run.optim.plan().dataset_size() as f64;
        let threshold = |run: &mut Run| run.optim.thresholds().unwrap().total_norm();
        let (mut score, mut now) = (0.0, threshold(&mut run));
        for _ in 0..STEPS {
            // Just below the threshold, even after rounding.
            let sums = run.step(|unit| (0, if unit == OTHERS { 0.999 * now } else { 0.0 }));
            let next = threshold(&mut run);
            let fraction = TARGET - (next / now).ln() / RATE;
            let count = (fraction - 0.5) * units - 0.5 * OTHERS as f64;
            score += sums[0][0] / now + 0.5 * count / COUNT_STD.powi(2);
            now = next;
        }
        score
    });
    let lower = gdp(&scores);
    assert!(lower <= epsilon && lower > epsilon / 3.0, "{lower} {epsilon}");
}
