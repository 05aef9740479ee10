//! Several augmented copies of every unit, from the batcher to the statement.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};

use super::{config, device, values};
use crate::grads::PrivateBackward;
use crate::nn::{IntoPrivate, Private};
use crate::optim::DpOptimizer;
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
    assert!(text.contains(&format!("augmentation_multiplicity: {COPIES}")), "{text}");
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
