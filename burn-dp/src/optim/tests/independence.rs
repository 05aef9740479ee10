use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{DType, Device, Tensor};

use super::{config, device, values};
use crate::DpError;
use crate::clipping::{Clipping, FlatClipping};
use crate::grads::PrivateBackward;
use crate::grads::oracle::numbers;
use crate::nn::{IntoPrivate, Private};
use crate::optim::{DpOptimizer, Independence};
use crate::sampling::{PrivateDataLoaderBuilder, Sampler};

fn model() -> Private<Linear> {
    LinearConfig::new(3, 3).init(&device()).private()
}

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

/// An optimizer whose draws have all twelve units.
fn all_drawn() -> DpOptimizer {
    all_drawn_with(1.0)
}

fn all_drawn_with(noise_multiplier: f64) -> DpOptimizer {
    let plan = super::PrivacyPlanConfig::new(12, 12.0)
        .with_steps(6)
        .with_noise_multiplier(noise_multiplier)
        .with_insecure_seed(crate::random::InsecureSeed(3));
    plan.init().unwrap().optimizer(SgdConfig::new().init())
}

fn losses(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

/// One backward pass over the rows of a batch of twelve.
fn attempt(forward: impl Fn(&Private<Linear>, Tensor<2>) -> Tensor<1>) -> Result<(), DpError> {
    let mut optim = all_drawn();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    optim.backward(&model(), &draw, |model, _| forward(model, numbers([12, 3], 2, &device())))
}

#[cfg(feature = "flex")]
#[test]
fn a_pass_through_a_type_of_small_range_is_refused_and_not_left_out() {
    let forward = |model: &Private<Linear>, x: Tensor<2>| {
        losses(model.forward(x).cast(DType::F16).cast(DType::F32))
    };
    let error = attempt(forward).unwrap_err().to_string();
    assert!(error.contains("f16") && error.contains("with_independence_check(false)"), "{error}");
}

#[test]
fn mixed_examples_are_refused_in_the_first_backward_pass() {
    let mixtures: [fn(&Private<Linear>, Tensor<2>) -> Tensor<1>; 5] = [
        // A normalizer over the batch.
        |model, x| {
            let output = model.forward(x);
            let total = output.clone().abs().sum().reshape([1, 1]);
            losses(output / total)
        },
        // Batch statistics between two layers, as a BatchNorm without a flag would take them.
        |model, x| {
            let hidden = model.forward(x);
            let centered = hidden.clone() - hidden.mean_dim(0);
            losses(model.forward(centered))
        },
        // A contrastive term.
        |model, x| {
            let output = model.forward(x);
            let similarity = output.clone().matmul(output.transpose());
            similarity.exp().sum_dim(1).log().reshape([-1])
        },
        // Every loss is the mean.
        |model, x| {
            let losses = losses(model.forward(x));
            let count = losses.dims()[0];
            losses.mean().expand([count])
        },
        // A weak dependence: one part in a million of the mean.
        |model, x| {
            let losses = losses(model.forward(x));
            losses.clone() + losses.mean() * 1e-6
        },
    ];
    for (index, mixture) in mixtures.into_iter().enumerate() {
        let error = attempt(mixture).unwrap_err().to_string();
        assert!(error.contains("reaches another example"), "{index}: {error}");
    }
}

#[test]
fn losses_of_very_different_size_are_not_taken_for_a_mixture() {
    attempt(|model, x| {
        let scales: Vec<f32> = (0..12).map(|i| 10f32.powi(i - 6)).collect();
        losses(model.forward(x)) * Tensor::<1>::from_floats(scales.as_slice(), &device())
    })
    .unwrap();
}

#[test]
fn a_loss_that_is_not_a_number_is_not_taken_for_a_mixture() {
    attempt(|model, x| {
        let factor = Tensor::<1>::from_floats(
            [[1.0; 11].as_slice(), &[f32::NAN]].concat().as_slice(),
            &device(),
        );
        losses(model.forward(x)) * factor
    })
    .unwrap();
}

#[test]
fn the_test_does_not_change_a_bit_of_the_step() {
    let model = model();
    let run = |check: bool| {
        let mut optim = optimizer().with_independence_check(check);
        let mut model = model.clone();
        for step in 0..3 {
            let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
            let units = draw.private_indices().len();
            let x = numbers([units, 3], 10 + step, &device());
            let twice = |model: &Private<Linear>, _| losses(model.forward(model.forward(x).tanh()));
            optim.backward(&model, &draw, twice).unwrap();
            model = optim.step(0.1, model, draw).unwrap();
        }
        (values(&model), optim.independence())
    };
    let (with, checked) = run(true);
    let (without, not_checked) = run(false);
    assert_eq!(with, without);
    assert!(matches!(checked, Independence::ByGradient { .. }));
    assert_eq!(not_checked, Independence::NotChecked);
}

#[test]
fn one_example_of_any_size_does_not_stop_the_run() {
    for outlier in [1e30, 1e36, f32::INFINITY] {
        for row in 0..12 {
            attempt(|model, x| {
                let scales: Vec<f32> =
                    (0..12).map(|i| if i == row { outlier } else { 1.0 }).collect();
                losses(model.forward(x)) * Tensor::<1>::from_floats(scales.as_slice(), &device())
            })
            .unwrap();
        }
    }
}

#[test]
fn the_statement_says_whether_it_was_checked() {
    let mut model = model();
    let mut optim = all_drawn();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let text = optim.statement(&[1e-3]).unwrap().to_string();
    assert!(text.contains("independence of examples: not checked"), "{text}");
    assert!(text.contains("depends on other examples: this was not checked"), "{text}");
    let x = numbers([draw.private_indices().len(), 3], 1, &device());
    optim.backward(&model, &draw, |model, _| losses(model.forward(x))).unwrap();
    model = optim.step(0.1, model, draw).unwrap();
    let text = optim.statement(&[1e-3]).unwrap().to_string();
    assert!(text.contains("checked by gradient alone"), "{text}");
    assert!(!text.contains("this was not checked"), "{text}");
    drop(model);
}

#[test]
fn unchecked_independence_is_in_the_statement() {
    let model = model();
    let mut optim = optimizer();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    for part in draw.parts(1).unwrap() {
        let row = |model: &Private<Linear>, unit: Vec<usize>| {
            losses(model.forward(numbers([1, 3], unit[0] as u64, &device())))
        };
        optim.backward(&model, part, row).unwrap();
    }
    let model = optim.step(0.1, model, draw).unwrap();
    assert_eq!(optim.independence(), Independence::NotChecked);

    let mut optim = all_drawn();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let half = |model: &Private<Linear>, _| {
        losses(model.forward(numbers([12, 3], 2, &device()))).cast(DType::F16)
    };
    optim.backward(&model, &draw, half).unwrap();
    assert_eq!(optim.independence(), Independence::NotChecked);
}

#[test]
fn copies_of_a_unit_may_mix_and_units_may_not() {
    let model = model();
    let copies = 3;
    let backward = PrivateBackward::new().with_group_size(copies);
    let x = numbers([12 * copies, 3], 2, &device());
    let grouped = |output: Tensor<2>| output.reshape([12, copies, 3]);

    let attempt = |mixed: usize| {
        let mut optim = all_drawn().with_backward(backward.clone());
        let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
        optim.backward(&model, &draw, |model, _| {
            let output = grouped(model.forward(x.clone()));
            let centered = output.clone() - output.mean_dim(mixed);
            losses(centered.reshape([12 * copies, 3]))
        })
    };
    attempt(1).unwrap();
    assert!(attempt(0).is_err());
}

/// A layer without bias, so that the gradient of the loss of a row is the row.
fn slope(d_input: usize) -> Private<Linear> {
    LinearConfig::new(d_input, 1).with_bias(false).init(&device()).private()
}

fn outputs(model: &Private<Linear>, x: Tensor<2>) -> Tensor<1> {
    model.forward(x).reshape([-1])
}

const THRESHOLD: f64 = 1.0;

/// The statement of the order of the rows.
const ORDER: &str = "That loss i was computed from unit i of the batch";

/// The statement of the groups of rows.
const GROUPS: &str = "that each group of consecutive losses belongs to one unit was not checked";

#[derive(Clone)]
struct Points;

impl Batcher<f32, Tensor<2>> for Points {
    fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<2> {
        Tensor::<1>::from_floats(items.as_slice(), device).reshape([-1, 1])
    }
}

/// Whether the test by value refuses these losses of twelve points.
fn is_refused_by_value(
    backward: &PrivateBackward,
    points: Vec<f32>,
    losses: impl Fn(&Private<Linear>, Tensor<2>) -> Tensor<1>,
) -> bool {
    let mut optim = all_drawn().with_backward(backward.clone());
    let batches = optim.plan().batches(InMemDataset::new(points), Points, &device()).unwrap();
    let batch = batches.into_iter().next().unwrap().unwrap();
    match optim.backward_batch(&slope(1), &batch, 12, losses) {
        Ok(()) => false,
        Err(error) => matches!(error, DpError::NotPerExample { .. }),
    }
}

#[test]
fn copies_in_blocks_exceed_the_threshold_and_the_statement_says_so() {
    let model = slope(1);
    let backward = PrivateBackward::new().with_group_size(2);
    // Two copies of all units after each other, where two copies of each unit are expected.
    let in_blocks =
        |model: &Private<Linear>, x: Tensor<2>| outputs(model, Tensor::cat(vec![x.clone(), x], 0));
    let value = |unit: &usize| [10.0, -10.0][unit % 2] * (unit / 2 + 1) as f32;
    let points = |units: &[usize]| units.iter().map(value).collect::<Vec<f32>>();
    let load = |units: &[usize]| Points.batch(points(units), &device());
    let clipped_sum = |units: &[usize]| -> f64 {
        let grads = backward.run(in_blocks(&model, load(units)), &model).unwrap();
        let sum = FlatClipping::new(THRESHOLD).unwrap().clip(grads).unwrap();
        sum.sums
            .into_values()
            .map(|(_, sum)| f64::from(sum.into_data().try_into_vec::<f32>().unwrap()[0]))
            .sum()
    };
    let all: Vec<usize> = (0..12).collect();
    let moved = (clipped_sum(&all) - clipped_sum(&all[1..])).abs();
    assert!(moved > 3.0 * THRESHOLD, "{moved}");

    let mut optim = all_drawn().with_backward(backward.clone());
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let losses = |model: &Private<Linear>, units: Vec<usize>| in_blocks(model, load(&units));
    optim.backward(&model, &draw, losses).unwrap();
    optim.step(0.1, model.clone(), draw).unwrap();
    assert_eq!(optim.independence(), Independence::ByGradient { step: 0 });
    let text = optim.statement(&[1e-3]).unwrap().not_covered.join(" ");
    assert!(text.contains(GROUPS) && text.contains(ORDER), "{text}");
    assert!(is_refused_by_value(&backward, points(&all), in_blocks));
}

#[test]
fn sorted_rows_with_padding_exceed_the_threshold_and_the_statement_says_so() {
    // The copies of the first unit that pad a batch are not its last rows.
    let sorted = |model: &Private<Linear>, x: Tensor<2>| outputs(model, x.sort(0));
    // One step on these items, with little noise.
    let step = |items: Vec<f32>| {
        let mut optim = all_drawn_with(1e-3);
        let builder = PrivateDataLoaderBuilder::new(Points).with_device(device()).with_padding();
        let sampler = optim.plan().sampler().unwrap();
        let mut batches = builder.build(InMemDataset::new(items), sampler, 1).unwrap();
        let batch = batches.next().unwrap().unwrap();
        let mut model = slope(1);
        model.inner.weight = model.inner.weight.map(|weight| weight.zeros_like().require_grad());
        for physical_batch in batch.physical_batches(8).unwrap() {
            optim.backward(&model, physical_batch.unwrap(), sorted).unwrap();
        }
        let model = optim.step(1.0, model, batch).unwrap();
        (values(&model).concat()[0], optim)
    };
    let items: Vec<f32> = (1..=12).map(|item| item as f32).collect();
    let (base, optim) = step(items.clone());
    let moved = (0..12).map(|unit| {
        // An item with a gradient of zero adds as much as no item.
        let mut neighbor = items.clone();
        neighbor[unit] = 0.0;
        12.0 * f64::from((base - step(neighbor).0).abs())
    });
    let largest = moved.fold(0.0, f64::max);
    assert!(largest > 1.5 * THRESHOLD, "{largest}");
    assert_eq!(optim.independence(), Independence::ByGradient { step: 0 });
    let text = optim.statement(&[1e-3]).unwrap().not_covered.join(" ");
    assert!(text.contains(ORDER) && !text.contains(GROUPS), "{text}");
    assert!(is_refused_by_value(&PrivateBackward::new(), items, sorted));
}
