//! Losses that depend on other examples without a gradient that shows it.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{Module, RunningState};
use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::{DType, Device, Distribution, FloatDType, Tensor};

use super::{PrivacyPlanConfig, device, layer, values};
use crate::DpError;
use crate::check_independence;
use crate::grads::PrivateBackward;
use crate::grads::oracle::numbers;
use crate::nn::{IntoPrivate, Private};
use crate::optim::{DpOptimizer, Independence, IndependenceCheck};
use crate::random::InsecureSeed;
use crate::sampling::{
    AugmentationBatcher, LogicalBatch, LogicalBatches, PrivateDataLoaderBuilder,
};

#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    second: Private<Linear>,
}

/// A sequence of one to seven points, and its class.
#[derive(Clone, Debug)]
struct Item {
    points: Vec<[f32; 3]>,
    class: usize,
}

/// The points of the items, padded with zeros to the longest of them.
#[derive(Clone)]
struct Batch {
    /// `[batch_size, positions, 3]`
    points: Tensor<3>,
    lengths: Vec<usize>,
    classes: Vec<usize>,
}

impl Batch {
    /// The first point of each item: `[batch_size, 3]`.
    fn first(&self) -> Tensor<2> {
        self.points.clone().narrow(1, 0, 1).squeeze_dim(1)
    }

    /// One value for each item: `[batch_size]`.
    fn constant(&self, value: impl Fn(usize) -> f32) -> Tensor<1> {
        let values: Vec<f32> = (0..self.classes.len()).map(value).collect();
        Tensor::from_floats(values.as_slice(), &self.points.device())
    }

    /// 1 for each point of an item and 0 for its padding: `[batch_size, positions]`.
    fn mask(&self) -> Tensor<2> {
        let positions = self.points.dims()[1];
        let row = |&length: &usize| (0..positions).map(move |at| f32::from(u8::from(at < length)));
        let mask: Vec<f32> = self.lengths.iter().flat_map(row).collect();
        Tensor::<1>::from_floats(mask.as_slice(), &self.points.device())
            .reshape([-1, positions as i32])
    }
}

#[derive(Clone)]
struct Batches;

impl Batcher<Item, Batch> for Batches {
    fn batch(&self, items: Vec<Item>, device: &Device) -> Batch {
        let lengths: Vec<usize> = items.iter().map(|item| item.points.len()).collect();
        let longest = lengths.iter().copied().max().unwrap();
        let mut values = Vec::new();
        for item in &items {
            values.extend(item.points.iter().flatten());
            values.extend(vec![0.0; 3 * (longest - item.points.len())]);
        }
        Batch {
            points: Tensor::<1>::from_floats(values.as_slice(), device).reshape([
                items.len(),
                longest,
                3,
            ]),
            lengths,
            classes: items.iter().map(|item| item.class).collect(),
        }
    }
}

fn items(count: usize) -> Vec<Item> {
    let point = |seed| numbers::<1>([3], seed, &Device::flex()).into_data().try_to_vec().unwrap();
    let item = |unit: usize| Item {
        points: (0..unit % 7 + 1)
            .map(|at| <[f32; 3]>::try_from(point((10 * unit + at) as u64)).unwrap())
            .collect(),
        class: unit % 3,
    };
    (0..count).map(item).collect()
}

fn model() -> Net {
    Net { first: layer(3, 3, 1), second: layer(3, 3, 2) }
}

/// A plan that draws all units in every step.
fn optimizer(units: usize) -> DpOptimizer {
    let plan = PrivacyPlanConfig::new(units, units as f64)
        .with_steps(20)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(3));
    plan.init().unwrap().optimizer(SgdConfig::new().init())
}

fn batches(optim: &DpOptimizer, items: Vec<Item>) -> LogicalBatches<Batch> {
    optim.plan().batches(InMemDataset::new(items), Batches, &device()).unwrap()
}

fn draw(optim: &DpOptimizer, items: Vec<Item>, step: u64) -> LogicalBatch<Batch> {
    batches(optim, items).skip_to(step).unwrap().next().unwrap().unwrap()
}

fn squares<const D: usize>(output: Tensor<D>) -> Tensor<1> {
    let rows = output.dims()[0];
    output.powi_scalar(2).reshape([rows as i32, -1]).sum_dim(1).reshape([rows])
}

/// Losses that depend on their own examples.
fn honest(model: &Net, batch: &Batch) -> Tensor<1> {
    squares(model.second.forward(model.first.forward(batch.first()).tanh()))
}

type Losses = fn(&Net, Batch) -> Tensor<1>;

/// The cases that a test of gradients accepts.
const MIXTURES: [(&str, Losses); 13] = [
    ("class weights over the sum of the batch", |model, batch| {
        let weights = batch.constant(|row| [1.0, 3.0, 9.0][batch.classes[row]]);
        honest(model, &batch) * weights.clone() / weights.sum()
    }),
    ("over the number of rows", |model, batch| honest(model, &batch) / batch.classes.len() as f64),
    ("over the detached mean", |model, batch| {
        let losses = honest(model, &batch);
        losses.clone() / losses.mean().detach()
    }),
    ("detached batch means between two layers", |model, batch| {
        let hidden = model.first.forward(batch.first());
        squares(model.second.forward(hidden.clone() - hidden.mean_dim(0).detach()))
    }),
    ("the four largest losses", |model, batch| {
        let losses = honest(model, &batch);
        let mut sorted: Vec<f32> = losses.clone().detach().into_data().try_to_vec().unwrap();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let least = sorted[sorted.len().min(4) - 1];
        losses.clone() * losses.detach().greater_equal_scalar(least).float()
    }),
    ("losses of at least the mean", |model, batch| {
        let losses = honest(model, &batch);
        let mean = losses.clone().mean().detach();
        losses.clone() * losses.detach().greater_equal(mean).float()
    }),
    ("a mean over padded rows", |model, batch| {
        let hidden = model.first.forward(batch.points).tanh();
        squares(model.second.forward(hidden.mean_dim(1)))
    }),
    ("a mean over the tokens of the batch", |model, batch| {
        let hidden = model.second.forward(model.first.forward(batch.points.clone()).tanh());
        let tokens = hidden.powi_scalar(2).sum_dim(2).squeeze_dim::<2>(2) * batch.mask();
        tokens.sum_dim(1).squeeze_dim::<1>(1) / batch.mask().sum()
    }),
    ("mixup before the first layer", |model, batch| {
        let x = batch.first();
        let rows = x.dims()[0];
        let last = x.clone().narrow(0, rows - 1, 1);
        let others = Tensor::cat(vec![last, x.clone().narrow(0, 0, rows - 1)], 0);
        squares(model.second.forward(model.first.forward(x * 0.7 + others * 0.3).tanh()))
    }),
    ("a read of row 0", |model, batch| {
        let x = batch.first();
        let anchor = x.clone().narrow(0, 0, 1);
        squares(model.second.forward(model.first.forward(x - anchor).tanh()))
    }),
    ("the number of the row", |model, batch| {
        honest(model, &batch) * batch.constant(|row| 1.0 + row as f32)
    }),
    ("a gradient whose value cancels", |model, batch| {
        let losses = honest(model, &batch);
        let scaled = losses.clone() * losses.clone().mean().detach();
        losses + scaled.clone() - scaled.detach()
    }),
    ("a sign of the batch whose value cancels", |model, batch| {
        let losses = honest(model, &batch);
        let sign = batch.first().narrow(1, 1, 1).mean().sign();
        (losses.clone() - losses.detach()) * sign + 1.0
    }),
];

#[test]
fn mixtures_without_a_gradient_are_accepted_by_gradient_and_refused_by_value() {
    for (name, losses) in MIXTURES {
        let model = model();
        let mut by_gradient = optimizer(32);
        let batch = draw(&by_gradient, items(32), 0);
        for physical in batch.physical_batches(32).unwrap() {
            by_gradient.backward(&model, physical.unwrap(), losses).unwrap();
        }
        by_gradient.step(0.1, model.clone(), batch).unwrap();
        assert_eq!(by_gradient.independence(), Independence::ByGradient { step: 0 }, "{name}");

        for physical_batch_size in [32, 16] {
            let mut optim = optimizer(32);
            let batch = draw(&optim, items(32), 0);
            let refused = optim.backward_batch(&model, &batch, physical_batch_size, losses);
            let error = refused.unwrap_err();
            assert!(matches!(error, DpError::NotPerExample { .. }), "{name}: {error}");
            let error = error.to_string();
            let what = if name.contains("cancels") { "the gradient of `" } else { "the loss of" };
            assert!(error.contains(what), "{name}: {error}");
            assert!(error.contains("from its own example alone"), "{name}: {error}");
        }

        let items = items(32);
        let refused = check_independence(&model, &items, |model, items| {
            losses(model, Batches.batch(items, &device()))
        });
        assert!(refused.is_err(), "{name}");
    }
}

// The other batches of the test have 56, 28, 63 and 1 rows.
#[test]
fn a_mixture_in_the_pass_that_is_clipped_alone_is_found() {
    let mixed: Losses = |model, batch| {
        let losses = honest(model, &batch);
        let mean = losses.clone().mean().detach();
        if losses.dims()[0] == 64 { losses * mean } else { losses }
    };
    for (units, padded) in [(64, false), (60, true)] {
        let (model, mut optim) = (model(), optimizer(units));
        let builder = PrivateDataLoaderBuilder::new(Batches).with_device(device());
        let builder = if padded { builder.with_padding() } else { builder };
        let sampler = optim.plan().sampler().unwrap();
        let data = InMemDataset::new(items(units));
        let batch = builder.build(data, sampler, 1).unwrap().next().unwrap().unwrap();
        let error = optim.backward_batch(&model, &batch, 64, mixed).unwrap_err().to_string();
        assert!(error.contains("in the batch that is clipped, padding included"), "{error}");
        optim.discard();
        // The function is tested again.
        assert!(optim.backward_batch(&model, &batch, 64, mixed).is_err());
        optim.discard();
        let losses = |model: &Net, batch| honest(model, &batch);
        optim.backward_batch(&model, &batch, 64, losses).unwrap();
        optim.step(0.1, model, batch).unwrap();
    }
}

#[test]
fn a_batch_of_few_units_proves_nothing() {
    let plan = |seed| {
        let plan = PrivacyPlanConfig::new(200, 10.0).with_steps(2).with_noise_multiplier(1.0);
        plan.with_insecure_seed(InsecureSeed(seed)).init().unwrap()
    };
    let drawn = |seed, step| {
        let draw = plan(seed).sampler().unwrap().draw(step).unwrap();
        draw.private_indices().len()
    };
    // Less than half of the expected number, and at least half of it.
    let fits = |seed: &u64| (2..5).contains(&drawn(*seed, 0)) && (5..8).contains(&drawn(*seed, 1));
    let seed = (0..).find(fits).unwrap();
    let mut optim = plan(seed).optimizer(SgdConfig::new().init());
    let (mut model, batches) = (model(), batches(&optim, items(200)));
    for (step, batch) in (0..).zip(batches) {
        let batch = batch.unwrap();
        optim.backward_batch(&model, &batch, 64, |model: &Net, b| honest(model, &b)).unwrap();
        model = optim.step(0.1, model, batch).unwrap();
        let is_checked = matches!(optim.independence(), Independence::ByValue { .. });
        assert_eq!(is_checked, step == 1);
    }
}

#[test]
fn a_batch_without_finite_losses_leaves_the_test_to_the_next_one() {
    const UNKNOWN: usize = 9;
    let mut items = items(16);
    items[..8].iter_mut().for_each(|item| item.class = UNKNOWN);
    let mut optim = optimizer(16);
    let (model, batch) = (model(), draw(&optim, items, 0));
    let losses: Losses = |model, batch| {
        let factors =
            batch.constant(|row| if batch.classes[row] == UNKNOWN { f32::NAN } else { 1.0 });
        honest(model, &batch) * factors
    };
    optim.backward_batch(&model, &batch, 8, losses).unwrap();
    optim.step(0.1, model, batch).unwrap();
    assert_eq!(optim.independence(), Independence::ByValue { step: 0 });
}

#[derive(Module, Debug)]
struct Storing {
    layer: Private<Linear>,
    mean: RunningState<Tensor<1>>,
}

#[test]
fn a_check_of_items_stores_nothing_in_the_model() {
    let mean = RunningState::new(Tensor::zeros([3], &device()));
    let model = Storing { layer: layer(3, 3, 1), mean };
    check_independence(&model, &items(8), |model: &Storing, items| {
        let first = Batches.batch(items, &device()).first();
        model.mean.update(first.clone().mean_dim(0).reshape([3]));
        let _ = model.mean.value_sync();
        squares(model.layer.forward(first))
    })
    .unwrap();
    assert_eq!(model.mean.value_sync().into_data().try_to_vec::<f32>().unwrap(), [0.0; 3]);
}

#[test]
fn a_check_in_which_no_items_can_be_compared_is_an_error() {
    let check = |more: f64| {
        check_independence(&model(), &items(8), |model, items| {
            honest(model, &Batches.batch(items, &device())) + more
        })
    };
    check(1.0).unwrap();
    let error = check(f64::INFINITY).unwrap_err().to_string();
    assert!(error.contains("had no result"), "{error}");
}

/// Returns the smallest exponent of a power of ten that, as a weight, lets a mixture be found.
fn weakest_mixture(mixed: impl Fn(Tensor<1>, f64) -> Tensor<1>) -> i32 {
    let refused = |&power: &i32| {
        let weight = 10f64.powi(power);
        let losses =
            |model: &Net, items| mixed(honest(model, &Batches.batch(items, &device())), weight);
        check_independence(&model(), &items(48), losses).is_err()
    };
    // Not the weight, which systems round differently.
    (-9..0).find(refused).unwrap()
}

#[test]
fn weak_mixtures_are_found() {
    let by_mean = weakest_mixture(|losses, weight| {
        losses.clone() * (losses.detach().mean().tanh() * weight + 1.0)
    });
    let by_gradient = weakest_mixture(|losses, weight| {
        let scaled = losses.clone() * losses.clone().mean().detach() * weight;
        losses + scaled.clone() - scaled.detach()
    });
    let by_rows = weakest_mixture(|losses, weight| {
        let rows = losses.dims()[0] as f64;
        losses * (1.0 + weight * rows / 48.0)
    });
    // The three largest losses alone, which alone or in half of the batch change by this share.
    let largest = {
        let losses = honest(&model(), &Batches.batch(items(48), &device())).into_data();
        let mut losses: Vec<f32> = losses.try_to_vec().unwrap();
        losses.sort_by(f32::total_cmp);
        f64::from(0.5 * (losses[44] + losses[45]))
    };
    let by_few = weakest_mixture(|losses, weight| {
        let few = losses.clone().detach().greater_elem(largest).float();
        let rows = losses.dims()[0] as f64;
        losses * (few * (2.0 * weight * rows / 48.0) + 1.0)
    });
    assert!(by_few <= -2, "{by_few}");
    // A weight of 1e-4 changes each loss by at most 5e-5 of it.
    assert!(by_rows <= -4, "{by_rows}");
    // The means of the batches differ by a fraction.
    assert!(by_mean <= -2, "{by_mean}");
    assert!(by_gradient <= -3, "{by_gradient}");
}

#[test]
fn honest_losses_pass_in_batches_of_every_size() {
    let masked: Losses = |model, batch| {
        let hidden = model.first.forward(batch.points.clone()).tanh();
        let mask = batch.mask().unsqueeze_dim::<3>(2);
        let mean = (hidden * mask.clone()).sum_dim(1) / mask.sum_dim(1);
        squares(model.second.forward(mean))
    };
    for losses in [masked, |model, batch| honest(model, &batch)] {
        for (units, physical_batch_size) in [(1, 4), (2, 4), (3, 2), (17, 1), (40, 7), (40, 64)] {
            let model = model();
            let mut optim = optimizer(units);
            let batch = draw(&optim, items(units), 0);
            optim.backward_batch(&model, &batch, physical_batch_size, losses).unwrap();
            optim.step(0.1, model, batch).unwrap();
            // A batch of one unit proves nothing.
            let checked = optim.independence() == Independence::ByValue { step: 0 };
            assert_eq!(checked, units.min(physical_batch_size) > 1, "{units}");
        }
    }
}

#[test]
fn badly_conditioned_losses_are_not_taken_for_mixtures() {
    let losses: [Losses; 4] = [
        // Differences of nearly equal numbers.
        |model, batch| squares(model.first.forward(batch.first()) * 1e-4 + 1e3 - 1e3),
        |model, batch| {
            let x = batch.first() + 1e4;
            let exact = model.first.forward(x.clone()).detach();
            squares(model.first.forward(x) - exact)
        },
        // Losses of very different size.
        |model, batch| {
            let scales = batch.constant(|row| 10f32.powi(4 * batch.classes[row] as i32 - 4));
            honest(model, &batch) * scales
        },
        // One example of each kind that is not finite.
        |model, batch| {
            let classes = batch.classes.clone();
            honest(model, &batch)
                * batch.constant(|row| if classes[row] == 1 { f32::NAN } else { 1.0 })
        },
    ];
    for (index, losses) in losses.into_iter().enumerate() {
        let model = model();
        let mut optim = optimizer(24);
        let batch = draw(&optim, items(24), 0);
        let checked = optim.backward_batch(&model, &batch, 24, losses);
        assert!(checked.is_ok(), "{index}: {}", checked.unwrap_err());
    }
}

#[test]
fn half_precision_is_not_taken_for_a_mixture_and_hides_no_large_one() {
    for dtype in [DType::F16, DType::BF16] {
        let halve = |layer: Private<Linear>| {
            let mut layer = layer.into_inner();
            layer.weight = layer.weight.map(|w| w.cast(dtype).detach().require_grad());
            layer.bias = layer.bias.map(|b| b.map(|b| b.cast(dtype).detach().require_grad()));
            layer.private()
        };
        let Net { first, second } = model();
        let model = Net { first: halve(first), second: halve(second) };
        let check = |losses: &dyn Fn(&Net, Tensor<2>) -> Tensor<1>| {
            check_independence(&model, &items(32), |model, items| {
                losses(model, Batches.batch(items, &device()).first().cast(dtype))
            })
        };
        let output = |model: &Net, x| model.second.forward(model.first.forward(x).tanh());
        check(&|model, x| squares(output(model, x))).unwrap();
        check(&|model, x| squares(output(model, x).cast(DType::F32))).unwrap();
        let error = check(&|model, x| {
            let losses = squares(output(model, x));
            let rows = losses.dims()[0];
            losses / rows as f64
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("from its own example alone"), "{dtype:?}: {error}");
    }
}

#[test]
fn random_values_that_belong_to_no_unit_are_refused_as_such() {
    let losses: Losses = |model, batch| {
        let losses = honest(model, &batch);
        let factors = losses.random_like(Distribution::Uniform(0.5, 1.5));
        losses * factors
    };
    let mut optim = optimizer(16);
    let batch = draw(&optim, items(16), 0);
    let error = optim.backward_batch(&model(), &batch, 16, losses).unwrap_err().to_string();
    assert!(error.contains("draws random values that belong to no unit"), "{error}");
    assert!(error.contains("`Private<Dropout>`"), "{error}");
}

/// A number that every call changes.
fn next() -> f32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CALLS: AtomicU32 = AtomicU32::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) as f32
}

#[test]
fn augmentations_must_follow_from_their_items() {
    let attempt = |augment: fn(&Item, usize) -> Item| {
        let backward = PrivateBackward::new().with_group_size(2);
        let mut optim = optimizer(16).with_backward(backward);
        let batcher = AugmentationBatcher::new(Batches, 2, augment).unwrap();
        let builder = PrivateDataLoaderBuilder::new(batcher).with_device(device());
        let sampler = optim.plan().sampler().unwrap();
        let mut batches = builder.build(InMemDataset::new(items(16)), sampler, 1).unwrap();
        let batch = batches.next().unwrap().unwrap();
        optim.backward_batch(&model(), &batch, 16, |model: &Net, batch| honest(model, &batch))
    };
    attempt(|item, copy| {
        let by = copy as f32 * item.points[0][0];
        Item { points: item.points.iter().map(|p| p.map(|x| x + by)).collect(), ..item.clone() }
    })
    .unwrap();
    let error = attempt(|item, _| {
        let by = next().sin();
        Item { points: item.points.iter().map(|p| p.map(|x| x + by)).collect(), ..item.clone() }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("derive every augmentation from its own item"), "{error}");
}

#[test]
fn the_test_by_value_does_not_change_a_bit_of_the_run() {
    let start = model();
    let run = |check: IndependenceCheck| {
        let mut optim = optimizer(24).with_independence_check(check);
        let mut model = start.clone();
        for step in 0..4 {
            let batch = draw(&optim, items(24), step);
            optim.backward_batch(&model, &batch, 10, |model: &Net, b| honest(model, &b)).unwrap();
            model = optim.step(0.1, model, batch).unwrap();
        }
        (values(&model), optim.independence(), optim.ledger().entries().to_vec())
    };
    let (without, not_checked, ledger) = run(IndependenceCheck::Never);
    assert_eq!(not_checked, Independence::NotChecked);
    for check in [IndependenceCheck::FirstStep, IndependenceCheck::Every(1)] {
        let (with, checked, same) = run(check);
        assert_eq!((with, same), (without.clone(), ledger.clone()));
        assert_eq!(checked, Independence::ByValue { step: 0 });
    }
}

#[test]
fn a_mixture_that_begins_later_is_found_at_the_rate_that_is_set() {
    let run = |check: IndependenceCheck| {
        let mut optim = optimizer(16).with_independence_check(check);
        let (mut model, batches) = (model(), batches(&optim, items(16)));
        for (step, batch) in (0..8).zip(batches) {
            let batch = batch.unwrap();
            let found = optim.backward_batch(&model, &batch, 16, |model: &Net, batch| {
                let losses = honest(model, &batch);
                let rows = batch.classes.len() as f64;
                if step < 3 { losses } else { losses / rows }
            });
            match found {
                Ok(()) => model = optim.step(0.1, model, batch).unwrap(),
                Err(_) => return Some(step),
            }
        }
        None
    };
    assert_eq!(run(IndependenceCheck::FirstStep), None);
    assert_eq!(run(IndependenceCheck::Every(3)), Some(3));
    assert_eq!(run(IndependenceCheck::Every(5)), Some(5));
}

#[test]
fn every_process_and_every_function_is_tested() {
    let mixed: Losses = |model, batch| {
        let losses = honest(model, &batch);
        let rows = losses.dims()[0] as f64;
        losses / rows
    };
    let mut optim = optimizer(16);
    let (mut model, batch) = (model(), draw(&optim, items(16), 0));
    optim.backward_batch(&model, &batch, 16, |model: &Net, batch| honest(model, &batch)).unwrap();
    model = optim.step(0.1, model, batch).unwrap();
    assert_eq!(optim.independence(), Independence::ByValue { step: 0 });
    let batch = draw(&optim, items(16), 1);
    let error = optim.backward_batch(&model, &batch, 16, mixed).unwrap_err().to_string();
    assert!(error.contains("from its own example alone"), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let mut optim = optimizer(16).with_release_log(folder.path().join("releases.log")).unwrap();
    let batch = draw(&optim, items(16), 0);
    optim.backward_batch(&model, &batch, 16, |model: &Net, batch| honest(model, &batch)).unwrap();
    model = optim.step(0.1, model, batch).unwrap();
    let record = optim.to_record().unwrap();
    drop(optim);
    let mut resumed = optimizer(16).load_record(record).unwrap();
    assert_eq!(resumed.independence(), Independence::ByValue { step: 0 });
    let batch = draw(&resumed, items(16), 1);
    let error = resumed.backward_batch(&model, &batch, 16, mixed).unwrap_err().to_string();
    assert!(error.contains("from its own example alone"), "{error}");
}

// Sharp edge: a function that was tested gets other batches, or other copies of a unit.
#[test]
fn a_tested_function_is_tested_again_on_other_batches_and_copies() {
    /// Subtracts the mean of the batch.
    #[derive(Clone)]
    struct Centered;

    impl Batcher<Item, Batch> for Centered {
        fn batch(&self, items: Vec<Item>, device: &Device) -> Batch {
            let batch = Batches.batch(items, device);
            let mean = batch.points.clone().mean_dim(0);
            Batch { points: batch.points - mean, ..batch }
        }
    }

    /// Copies all items after all items, not each after itself.
    #[derive(Clone)]
    struct Blocks;

    impl Batcher<Item, Batch> for Blocks {
        fn batch(&self, items: Vec<Item>, device: &Device) -> Batch {
            Batches.batch([items.clone(), items].concat(), device)
        }
    }

    let clip = |optim: &mut DpOptimizer, model: &Net, batch: &LogicalBatch<Batch>| {
        optim.backward_batch(model, batch, 16, |model: &Net, batch| honest(model, &batch))
    };
    let data = || InMemDataset::new(items(16));
    for copies in [1, 2] {
        let mut optim = optimizer(16);
        let batch = draw(&optim, items(16), 0);
        clip(&mut optim, &model(), &batch).unwrap();
        let model = optim.step(0.1, model(), batch).unwrap();
        let mut optim = optim.with_backward(PrivateBackward::new().with_group_size(copies));
        let plan = optim.plan();
        let batches = match copies {
            1 => plan.batches(data(), Centered, &device()).unwrap(),
            _ => plan.batches(data(), Blocks, &device()).unwrap(),
        };
        let batch = batches.skip_to(1).unwrap().next().unwrap().unwrap();
        let error = clip(&mut optim, &model, &batch).unwrap_err().to_string();
        assert!(error.contains("from its own example alone"), "{copies}: {error}");
    }
}

// Sharp edge: a test that fails after steps that had passed it.
#[test]
fn a_run_whose_function_is_refused_later_is_not_checked_by_value() {
    let mut optim = optimizer(16).with_independence_check(IndependenceCheck::Every(2));
    let (mut model, batches) = (model(), batches(&optim, items(16)));
    let clip = |optim: &mut DpOptimizer, model: &Net, batch: &LogicalBatch<Batch>| {
        let mixes = batch.step() == 2;
        optim.backward_batch(model, batch, 16, |model: &Net, batch| {
            let (losses, rows) = (honest(model, &batch), batch.classes.len() as f64);
            if mixes { losses / rows } else { losses }
        })
    };
    for batch in batches.take(3) {
        let batch = batch.unwrap();
        if batch.step() == 2 {
            assert_eq!(optim.independence(), Independence::ByValue { step: 0 });
            let error = clip(&mut optim, &model, &batch).unwrap_err().to_string();
            assert!(error.contains("from its own example alone"), "{error}");
            optim.discard();
            optim = optim.with_independence_check(false);
        }
        clip(&mut optim, &model, &batch).unwrap();
        model = optim.step(0.1, model, batch).unwrap();
    }
    assert_eq!(optim.independence(), Independence::ByGradient { step: 0 });
}

#[test]
fn every_process_is_tested_by_gradient() {
    let backward = |optim: &mut DpOptimizer, model: &Net, step, losses: Losses| {
        let batch = draw(optim, items(16), step);
        for physical in batch.physical_batches(16)? {
            optim.backward(model, physical?, losses)?;
        }
        Ok::<_, DpError>(batch)
    };
    let mixed: Losses = |model, batch| {
        let losses = honest(model, &batch);
        losses.clone() - losses.mean()
    };
    let honest: Losses = |model, batch| honest(model, &batch);
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let mut optim = optimizer(16).with_release_log(folder.path().join("releases.log")).unwrap();
    let mut record = None;
    for step in 0..3 {
        let batch = backward(&mut optim, &model, step, honest).unwrap();
        optim.step(0.1, model.clone(), batch).unwrap();
        record.get_or_insert_with(|| optim.to_record().unwrap());
    }
    drop(optim);

    let mut resumed = optimizer(16).load_record(record.unwrap()).unwrap();
    assert_eq!(resumed.independence(), Independence::ByGradient { step: 0 });
    // Steps 1 and 2 are repeated: they are not tested, and must be as they were.
    for step in 1..3 {
        assert!(backward(&mut resumed, &model, step, mixed).is_ok());
        resumed.discard();
        let batch = backward(&mut resumed, &model, step, honest).unwrap();
        resumed.step(0.1, model.clone(), batch).unwrap();
    }
    let error = backward(&mut resumed, &model, 3, mixed).map(drop).unwrap_err().to_string();
    assert!(error.contains("reaches another example"), "{error}");
    resumed.discard();
    let batch = backward(&mut resumed, &model, 3, honest).unwrap();
    resumed.step(0.1, model.clone(), batch).unwrap();
    // What the earlier process found does not hold for a program that was refused.
    assert_eq!(resumed.independence(), Independence::ByGradient { step: 3 });
}

#[test]
fn the_statement_says_by_which_test_it_was_checked() {
    let said = |optim: &DpOptimizer| optim.statement(&[1e-3]).unwrap().to_string();
    let step = |optim: &mut DpOptimizer, number, by_value: bool| {
        let (model, batch) = (model(), draw(optim, items(16), number));
        match by_value {
            true => optim.backward_batch(&model, &batch, 16, |m: &Net, b| honest(m, &b)).unwrap(),
            false => {
                for physical in batch.physical_batches(16).unwrap() {
                    let losses = |model: &Net, input| honest(model, &input);
                    optim.backward(&model, physical.unwrap(), losses).unwrap();
                }
            }
        }
        optim.step(0.1, model, batch).unwrap();
    };
    let mut optim = optimizer(16);
    step(&mut optim, 0, true);
    let text = said(&optim);
    assert!(text.contains("independence of examples: checked by value on some batches"), "{text}");
    assert!(text.contains("a check cannot show a dependence on batches that were not"), "{text}");
    assert!(!text.contains("by gradient"), "{text}");
    // Losses of a function that was not tested.
    step(&mut optim, 1, false);
    let text = said(&optim);
    assert!(text.contains("checked by gradient alone on some batches, not by value"), "{text}");
    assert!(text.contains("check of gradients cannot show a dependence of values"), "{text}");

    let mut optim = optimizer(16).with_independence_check(false);
    step(&mut optim, 0, true);
    let text = said(&optim);
    assert!(text.contains("independence of examples: not checked"), "{text}");
    assert!(text.contains("depends on other examples: this was not checked"), "{text}");
}

#[test]
fn the_test_by_value_is_made_in_the_precision_of_the_passes() {
    let honest: Losses = |model, batch| {
        let x = batch.first().cast(DType::BF16);
        squares(model.second.forward(model.first.forward(x).tanh()).cast(DType::F32))
    };
    let mixed: Losses = |model, batch| {
        let x = batch.first().cast(DType::BF16);
        let output = model.second.forward(model.first.forward(x).tanh());
        squares(output.cast(DType::F32)) / batch.classes.len() as f64
    };
    let attempt = |losses: Losses| {
        let mut optim = optimizer(32).with_precision(FloatDType::BF16);
        let batch = draw(&optim, items(32), 0);
        optim.backward_batch(&model(), &batch, 16, losses)?;
        optim.step(0.1, model(), batch)?;
        Ok::<_, DpError>(optim.independence())
    };
    assert_eq!(attempt(honest).unwrap(), Independence::ByValue { step: 0 });
    let error = attempt(mixed).unwrap_err().to_string();
    assert!(error.contains("from its own example alone"), "{error}");
}
