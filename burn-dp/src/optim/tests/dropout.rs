//! Random layers whose values belong to units.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};

use super::{PrivacyPlanConfig, config, device, layer, values};
use crate::clipping::{Clipping, FlatClipping};
use crate::grads::PrivateBackward;
use crate::grads::oracle::numbers;
use crate::nn::{IntoPrivate, Private, UnitScope, Units};
use crate::optim::{DpOptimizer, Independence, IndependenceCheck};
use crate::random::{InsecureSeed, LayerRandomness};
use crate::sampling::Draw;

const CLIP: f64 = 0.5;

#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    dropout: Private<Dropout>,
    second: Private<Linear>,
}

impl Net {
    fn new() -> Self {
        let dropout = DropoutConfig::new(0.5).init().private();
        Self { first: layer(4, 32, 1), dropout, second: layer(32, 3, 2) }
    }

    fn losses(&self, x: Tensor<2>) -> Tensor<1> {
        let hidden = self.dropout.forward(self.first.forward(x).tanh());
        self.second.forward(hidden).powi_scalar(2).sum_dim(1).reshape([-1])
    }
}

fn row(unit: usize) -> Tensor<2> {
    numbers([1, 4], unit as u64 + 1, &device())
}

#[derive(Clone)]
struct Rows;

impl Batcher<usize, Tensor<2>> for Rows {
    fn batch(&self, items: Vec<usize>, _: &Device) -> Tensor<2> {
        Tensor::cat(items.into_iter().map(row).collect(), 0)
    }
}

/// The clipped sum of some units of step 0, with the generator of the device at a known state.
fn clipped_sum(model: &Net, smuggled: Option<&Dropout>, units: &[usize]) -> Vec<f32> {
    device().seed(7);
    let randomness = LayerRandomness::new(&InsecureSeed(3).into(), 0);
    let scope = Units::Rows { units: units.to_vec(), copies: 1 };
    let _scope = UnitScope::enter(model, &randomness, scope);
    let x = Rows.batch(units.to_vec(), &device());
    let losses = match smuggled {
        None => model.losses(x),
        Some(dropout) => {
            let hidden = dropout.forward(model.first.forward(x).tanh());
            model.second.forward(hidden).powi_scalar(2).sum_dim(1).reshape([-1])
        }
    };
    let grads = PrivateBackward::new().run(losses, model).unwrap();
    let sum = FlatClipping::new(CLIP).unwrap().clip(grads).unwrap();
    let mut sums: Vec<_> = sum.sums.into_iter().collect();
    sums.sort_by_key(|(id, _)| id.val());
    let values = |sum: Tensor<1>| sum.into_data().try_into_vec::<f32>().unwrap();
    sums.into_iter().flat_map(|(_, (_, sum))| values(sum)).collect()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn removing_a_unit_moves_the_sum_by_one_threshold_under_a_known_seed() {
    let model = Net::new();
    let ordinary = DropoutConfig::new(0.5).init();
    let all: Vec<usize> = (0..24).collect();
    let moved = |smuggled, removed: usize| {
        let rest: Vec<usize> = all.iter().copied().filter(|&unit| unit != removed).collect();
        distance(&clipped_sum(&model, smuggled, &all), &clipped_sum(&model, smuggled, &rest))
    };
    for removed in [0, 12, 23] {
        let moved = moved(None, removed);
        assert!(moved <= CLIP * (1.0 + 1e-4), "unit {removed}: {moved}");
        assert!(moved > 0.5 * CLIP, "unit {removed}: {moved}");
    }
    // The same test on Burn's layer, which takes the next values for each row.
    assert!(moved(Some(&ordinary), 0) > 2.0 * CLIP);
    assert!(moved(Some(&ordinary), 12) > 2.0 * CLIP);
}

fn optimizer() -> DpOptimizer {
    config().with_max_grad_norm(CLIP).init().unwrap().optimizer(SgdConfig::new().init())
}

/// The change of the model in a step on some of the drawn units, times the batch size.
fn released(model: &Net, units: &[usize], rows: usize) -> Vec<f64> {
    let mut optim = optimizer().with_independence_check(false);
    let drawn = optim.plan().sampler().unwrap().draw(0).unwrap();
    let (size, batch) = (optim.plan().dataset_size(), optim.plan().expected_batch_size());
    let draw = Draw::new(0, units.to_vec(), size, drawn.mechanism().clone(), drawn.origin());
    let draw = draw.unwrap();
    for part in draw.parts(rows).unwrap() {
        let losses = |model: &Net, units| model.losses(Rows.batch(units, &device()));
        optim.backward(model, part, losses).unwrap();
    }
    let after = values(&optim.step(1.0, model.clone(), draw).unwrap()).concat();
    let moved = values(model).concat().into_iter().zip(after);
    moved.map(|(before, after)| f64::from(before - after) * batch).collect()
}

// A neighbor as in the proof of the sensitivity: the other units have the draws and masks that they
// have next to the unit, and other rows; see `LayerRandomness`.
#[test]
fn a_step_without_a_drawn_unit_moves_by_one_threshold_wherever_it_was() {
    let model = Net::new();
    let drawn = optimizer().plan().sampler().unwrap().draw(0).unwrap().private_indices().to_vec();
    let last = drawn.len() - 1;
    assert!(last > 3);
    for rows in [1, 2, 1000] {
        let whole = released(&model, &drawn, rows);
        for removed in [0, last / 2, last] {
            let mut rest = drawn.clone();
            rest.remove(removed);
            let without = released(&model, &rest, rows);
            let pairs = whole.iter().zip(&without);
            let moved = pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            assert!(moved <= CLIP * (1.0 + 1e-3), "{removed} of {last}, {rows} rows: {moved}");
            assert!(moved > 0.5 * CLIP, "{removed} of {last}, {rows} rows: {moved}");
        }
    }
}

#[test]
fn one_physical_batch_and_single_units_have_the_masks_of_the_whole_batch() {
    let model = Net::new();
    let mut expected = optimizer().with_independence_check(false);
    let draw = expected.plan().sampler().unwrap().draw(0).unwrap();
    let batches = expected.plan().batches(InMemDataset::new((0..12).collect()), Rows, &device());
    let batch = batches.unwrap().next().unwrap().unwrap();
    expected.backward_batch(&model, &batch, 3, |model: &Net, x| model.losses(x)).unwrap();
    let expected = values(&expected.step(0.1, model.clone(), batch).unwrap()).concat();

    let mut rows = optimizer().with_independence_check(false);
    let losses = |model: &Net, units| model.losses(Rows.batch(units, &device()));
    rows.backward(&model, &draw, losses).unwrap();
    let found = values(&rows.step(0.1, model.clone(), draw.clone()).unwrap()).concat();
    assert!(distance(&found, &expected) < 1e-5);

    let mut each = optimizer();
    each.backward_each(&model, &draw, |model: &Net, unit| model.losses(row(unit))).unwrap();
    let found = values(&each.step(0.1, model, draw).unwrap()).concat();
    assert!(distance(&found, &expected) < 1e-5);
}

fn run(model: &Net, seed: u64, physical_batch_size: usize, check: IndependenceCheck) -> Vec<f32> {
    device().seed(seed);
    let mut optim = optimizer().with_independence_check(check);
    let batches = optim.plan().batches(InMemDataset::new((0..12).collect()), Rows, &device());
    let mut model = model.clone();
    for batch in batches.unwrap().take(3) {
        let batch = batch.unwrap();
        let losses = |model: &Net, x| model.losses(x);
        optim.backward_batch(&model, &batch, physical_batch_size, losses).unwrap();
        model = optim.step(0.1, model, batch).unwrap();
    }
    values(&model).concat()
}

#[test]
fn masks_depend_neither_on_the_device_nor_on_the_batch_nor_on_the_test() {
    let model = Net::new();
    let expected = run(&model, 1, 12, IndependenceCheck::Never);
    assert_eq!(run(&model, 2, 12, IndependenceCheck::Every(1)), expected);
    for physical_batch_size in [1, 3, 5] {
        let found = run(&model, 3, physical_batch_size, IndependenceCheck::FirstStep);
        assert!(distance(&found, &expected) < 1e-5, "{physical_batch_size}");
    }
}

#[test]
fn losses_of_a_random_layer_without_units_are_refused() {
    let model = Net::new();
    let draw = optimizer().plan().sampler().unwrap().draw(0).unwrap();
    let losses = model.losses(Rows.batch(draw.private_indices().to_vec(), &device()));
    let error = optimizer().backward(&model, &draw, |_, _| losses).unwrap_err().to_string();
    assert!(error.contains("belong to no unit") && error.contains("backward_batch"), "{error}");

    // A mask whose rows are not the units.
    let batches = optimizer().plan().batches(InMemDataset::new((0..12).collect()), Rows, &device());
    let batch = batches.unwrap().next().unwrap().unwrap();
    let mut optim = optimizer().with_independence_check(false);
    let error = optim.backward_batch(&model, &batch, 12, |model: &Net, x: Tensor<2>| {
        let hidden = model.first.forward(x).tanh().transpose();
        let hidden = model.dropout.forward(hidden).transpose();
        model.second.forward(hidden).powi_scalar(2).sum_dim(1).reshape([-1])
    });
    assert!(error.unwrap_err().to_string().contains("axis 0"));

    // Outside a private step the layer is Burn's.
    let grads = model.losses(Rows.batch(vec![1, 2], &device())).sum().backward();
    assert!(model.first.clone().into_inner().weight.grad(&grads).is_some());
    let frozen = Net { dropout: model.dropout.clone().freeze(), ..model.clone() };
    let losses = |model: &Net, units| model.losses(Rows.batch(units, &device()));
    optimizer().backward(&frozen, &draw, losses).unwrap();
}

#[test]
fn ordinary_dropout_that_is_smuggled_in_is_found_by_value() {
    let (model, ordinary) = (Net::new(), DropoutConfig::new(0.5).init());
    let plan = PrivacyPlanConfig::new(16, 16.0)
        .with_steps(2)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(3));
    let mut optim = plan.init().unwrap().optimizer(SgdConfig::new().init());
    let dataset = InMemDataset::new((0..16).collect());
    let batch = optim.plan().batches(dataset, Rows, &device()).unwrap().next().unwrap().unwrap();
    let error = optim.backward_batch(&model, &batch, 16, |model: &Net, x: Tensor<2>| {
        let hidden = ordinary.forward(model.first.forward(x).tanh());
        model.second.forward(hidden).powi_scalar(2).sum_dim(1).reshape([-1])
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("draws random values that belong to no unit"), "{error}");
    // The private layer is accepted.
    optim.discard();
    optim.backward_batch(&model, &batch, 16, |model: &Net, x| model.losses(x)).unwrap();
    optim.step(0.1, model, batch).unwrap();
    assert_eq!(optim.independence(), Independence::ByValue { step: 0 });
}
