//! Several augmented copies of every unit, from the batcher to the statement.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};

use super::{config, device, layer, values};
use crate::clipping::{Clipping, FlatClipping};
use crate::grads::PrivateBackward;
use crate::grads::oracle::numbers;
use crate::nn::{IntoPrivate, Private, RandomCrop, UnitScope, Units};
use crate::optim::{DpOptimizer, Independence};
use crate::random::{InsecureSeed, LayerRandomness};
use crate::sampling::{AugmentationBatcher, PrivateDataLoaderBuilder, Sampler};

const COPIES: usize = 4;
const CLIP: f64 = 0.5;
const LR: f64 = 1.0;

struct Rows;

impl Batcher<[f32; 2], Tensor<2>> for Rows {
    fn batch(&self, items: Vec<[f32; 2]>, device: &Device) -> Tensor<2> {
        let count = items.len();
        Tensor::from_data(TensorData::new(items.concat(), [count, 2]), device)
    }
}

/// Turns the point by the number of the copy.
fn augment(item: &[f32; 2], copy: usize) -> [f32; 2] {
    let (sin, cos) = (copy as f32 * 0.3).sin_cos();
    [cos * item[0] - sin * item[1], sin * item[0] + cos * item[1]]
}

fn item(unit: usize) -> [f32; 2] {
    [(unit as f32).sin(), (unit as f32).cos()]
}

fn model() -> Private<Linear> {
    let mut layer: Linear = LinearConfig::new(2, 2).with_bias(false).init(&device());
    layer.weight = layer.weight.map(|w| w.ones_like().require_grad());
    layer.private()
}

fn losses(model: &Private<Linear>, x: Tensor<2>) -> Tensor<1> {
    model.forward(x).powi_scalar(2).sum_dim(1).reshape([-1])
}

fn optimizer() -> DpOptimizer {
    let plan = config().with_max_grad_norm(CLIP).init().unwrap();
    plan.optimizer(SgdConfig::new().init())
        .with_backward(PrivateBackward::new().with_group_size(COPIES))
}

/// The model after one step on `items`, drawn as the plan says.
fn step(items: Vec<[f32; 2]>, padded: bool) -> (Vec<f32>, DpOptimizer) {
    let mut optim = optimizer();
    let batcher = AugmentationBatcher::new(Rows, COPIES, augment).unwrap();
    let builder = PrivateDataLoaderBuilder::new(batcher).with_device(device());
    let builder = if padded { builder.with_padding() } else { builder };
    let sampler = optim.plan().sampler().unwrap();
    let mut batches = builder.build(InMemDataset::new(items), sampler, 1).unwrap();
    let batch = batches.next().unwrap().unwrap();
    let model = model();
    for physical_batch in batch.physical_batches(3).unwrap() {
        let physical_batch = physical_batch.unwrap();
        assert_eq!(physical_batch.batch().dims()[0], physical_batch.part().rows() * COPIES);
        optim.backward(&model, physical_batch, losses).unwrap();
    }
    let model = optim.step(LR, model, batch).unwrap();
    (values(&model).concat(), optim)
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn draws_count_units_and_the_statement_names_the_copies() {
    let (_, optim) = step((0..12).map(item).collect(), false);
    let drawn = optim.plan().sampler().unwrap().draw(0).unwrap().private_indices().len();
    assert_eq!(optim.statistics().reveal().examples, drawn);
    let text = optim.statement(&[1e-3]).unwrap().to_string();
    assert!(text.contains(&format!("augmentation multiplicity: {COPIES}")), "{text}");
}

#[test]
fn copies_without_a_group_size_are_refused_as_too_many_examples() {
    let mut optim = optimizer().with_backward(PrivateBackward::new());
    let model = model();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let items = draw.private_indices().iter().map(|&unit| item(unit)).collect();
    let x = AugmentationBatcher::new(Rows, COPIES, augment).unwrap().batch(items, &device());
    let rows = draw.private_indices().len();
    let error = optim.backward(&model, &draw, |model, _| losses(model, x)).unwrap_err().to_string();
    let expected = format!("there are {} losses, or groups of losses, for {rows}", rows * COPIES);
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn padding_counts_in_units_as_well() {
    let items: Vec<_> = (0..12).map(item).collect();
    let (plain, _) = step(items.clone(), false);
    let (padded, _) = step(items, true);
    assert!(distance(&plain, &padded) < 1e-6);
}

#[test]
fn exchanging_one_unit_moves_the_model_by_twice_the_threshold_at_most() {
    let items: Vec<_> = (0..12).map(item).collect();
    let (base, optim) = step(items.clone(), false);
    let drawn = optim.plan().sampler().unwrap().draw(0).unwrap();
    // The noise is the same, so only the sums differ; the update is their mean over
    // the expected batch size.
    let bound = LR * 2.0 * CLIP / 8.0 * (1.0 + 1e-5);
    let mut largest = 0.0f64;
    for &unit in drawn.private_indices() {
        for other in [[1e4, -1e4], [-1e-4, 0.0], [f32::NAN, 1.0], [1e30, 1e30]] {
            let mut neighbor = items.clone();
            neighbor[unit] = other;
            let moved = distance(&base, &step(neighbor, false).0);
            assert!(moved <= bound, "unit {unit}, {other:?}: {moved} > {bound}");
            largest = largest.max(moved);
        }
    }
    // A unit does move it: the copies of one are clipped together, not each to the threshold.
    assert!(largest > 0.2 * bound, "{largest}");
}

/// Moves images of 5 × 5 pixels before a linear layer.
#[derive(Module, Debug)]
struct Moving {
    crop: RandomCrop,
    fc: Private<Linear>,
}

impl Moving {
    fn new() -> Self {
        Self { crop: RandomCrop::new(2).unwrap().with_mirror(), fc: layer(25, 3, 1) }
    }

    fn losses(&self, images: Tensor<4>) -> Tensor<1> {
        let moved: Tensor<2> = self.crop.forward(images).flatten(1, 3);
        self.fc.forward(moved).powi_scalar(2).sum_dim(1).reshape([-1])
    }
}

#[derive(Clone)]
struct Images;

impl Batcher<usize, Tensor<4>> for Images {
    fn batch(&self, items: Vec<usize>, _: &Device) -> Tensor<4> {
        let image = |item| numbers([1, 1, 5, 5], item as u64 + 1, &device());
        Tensor::cat(items.into_iter().map(image).collect(), 0)
    }
}

#[test]
fn removing_an_image_that_moves_changes_the_sum_by_one_threshold() {
    let model = Moving::new();
    let clipped_sum = |units: &[usize]| -> Vec<f32> {
        let randomness = LayerRandomness::new(&InsecureSeed(3).into(), 0);
        let scope = Units::Rows { units: units.to_vec(), copies: COPIES };
        let _scope = UnitScope::enter(&model, &randomness, scope);
        let batcher = AugmentationBatcher::new(Images, COPIES, |&unit: &usize, _| unit).unwrap();
        let losses = model.losses(batcher.batch(units.to_vec(), &device()));
        let backward = PrivateBackward::new().with_group_size(COPIES);
        let grads = backward.run(losses, &model).unwrap();
        let sum = FlatClipping::new(CLIP).unwrap().clip(grads).unwrap();
        let mut sums: Vec<_> = sum.sums.into_iter().collect();
        sums.sort_by_key(|(id, _)| id.val());
        let values = |sum: Tensor<1>| sum.into_data().try_into_vec::<f32>().unwrap();
        sums.into_iter().flat_map(|(_, (_, sum))| values(sum)).collect()
    };
    let all: Vec<usize> = (0..20).collect();
    for removed in [0, 7, 19] {
        let rest: Vec<usize> = all.iter().copied().filter(|&unit| unit != removed).collect();
        let moved = distance(&clipped_sum(&all), &clipped_sum(&rest));
        assert!(moved <= CLIP * (1.0 + 1e-4) && moved > 0.5 * CLIP, "unit {removed}: {moved}");
    }
}

#[test]
fn images_that_move_pass_the_test_of_independence_by_value() {
    let model = Moving::new();
    let mut optim = optimizer();
    let batcher = AugmentationBatcher::new(Images, COPIES, |&unit: &usize, _| unit).unwrap();
    let dataset = InMemDataset::new((0..12).collect::<Vec<usize>>());
    let batches = optim.plan().batches(dataset, batcher, &device()).unwrap();
    let batch = batches.into_iter().next().unwrap().unwrap();
    optim.backward_batch(&model, &batch, 4, |model: &Moving, x| model.losses(x)).unwrap();
    optim.step(0.1, model, batch).unwrap();
    assert_eq!(optim.independence(), Independence::ByValue { step: 0 });
    // Nor does the statement say that the copies of a unit were not compared.
    let statement = optim.statement(&[1e-3]).unwrap();
    assert!(statement.facts.contains_key("augmentation_multiplicity"));
    let groups = "that each group of consecutive losses";
    assert!(!statement.not_covered.iter().any(|line| line.contains(groups)));
}

#[test]
fn a_run_that_is_resumed_without_copies_still_states_them() {
    let folder = tempfile::tempdir().unwrap();
    let begun = optimizer().with_release_log(folder.path().join("releases.log")).unwrap();
    let batcher = AugmentationBatcher::new(Images, COPIES, |&unit: &usize, _| unit).unwrap();
    let dataset = InMemDataset::new((0..12).collect::<Vec<usize>>());
    let batches = begun.plan().batches(dataset, batcher, &device()).unwrap();
    let (mut begun, model) = (begun, Moving::new());
    let batch = batches.into_iter().next().unwrap().unwrap();
    begun.backward_batch(&model, &batch, 4, |model: &Moving, x| model.losses(x)).unwrap();
    begun.step(0.1, model, batch).unwrap();
    let record = begun.to_record().unwrap();
    drop(begun);
    for (copies, expected) in [(1, "4"), (2, "4; 2")] {
        let backward = PrivateBackward::new().with_group_size(copies);
        let resumed = optimizer().with_backward(backward).load_record(record.clone()).unwrap();
        let statement = resumed.statement(&[1e-3]).unwrap();
        assert_eq!(statement.facts["augmentation_multiplicity"], expected);
    }
}
