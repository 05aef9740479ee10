//! Closed forms of unit updates, and the sensitivity of their sums.

#![allow(clippy::unwrap_used)]

use burn::module::{Module, Param, ParamId};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, SgdConfig};
use burn::tensor::{DType, Device, Tensor};
use burn_dp_accountant::NeighboringRelation;
use proptest::prelude::*;

use crate::clipping::{AutomaticClipping, ClippedSum, Clipping, GroupedClipping, Thresholds};
use crate::model::ParameterGroups;
use crate::test_devices::training_devices;
use crate::updates::{
    LocalTraining, UnitUpdate, clip_updates, private_copy, public_statistics, public_update_norms,
};
use crate::{DpError, PublicSource};

/// A parameter of three values with a chosen update, and an unused one.
#[derive(Module, Debug)]
struct Point {
    at: Param<Tensor<1>>,
    unused: Param<Tensor<2>>,
}

impl Point {
    fn new(device: &Device) -> Self {
        let at = Tensor::from_floats([1.0, 2.0, 3.0], device).require_grad();
        let unused = Tensor::zeros([2, 2], device).require_grad();
        Self {
            at: Param::initialized(ParamId::new(), at),
            unused: Param::initialized(ParamId::new(), unused),
        }
    }

    /// Returns a loss with this gradient.
    fn loss(&self, gradient: [f32; 3]) -> Tensor<1> {
        let at = self.at.val();
        let gradient = Tensor::<1>::from_floats(gradient, &at.device()).cast(at.dtype());
        (at * gradient).sum().reshape([1])
    }
}

fn sum_of(device: &Device, clip: f64, gradients: &[[f32; 3]]) -> (Vec<f64>, ClippedSum) {
    let model = Point::new(device);
    let clipping = Thresholds::whole(clip).unwrap();
    let sum = clip_updates(&clipping, &model, gradients, |model: Point, &gradient| {
        UnitUpdate::gradient(&model, model.loss(gradient))
    });
    let sum = sum.unwrap();
    let values = sum.sums.get(&model.at.id).map_or(vec![0.0; 3], |(_, sum)| {
        let values = sum.to_data().convert::<f64>();
        values.try_into_vec::<f64>().unwrap()
    });
    (values, sum)
}

#[test]
fn update_is_scaled_only_above_the_threshold() {
    for device in training_devices() {
        let (values, sum) = sum_of(&device, 1.0, &[[3.0, 0.0, 4.0], [0.0, 0.5, 0.0]]);
        for (value, expected) in values.into_iter().zip([0.6, 0.5, 0.8]) {
            assert!((value - expected).abs() < 2e-6, "{value} {expected}");
        }
        let statistics = sum.statistics().unwrap().reveal();
        assert_eq!((statistics.examples, statistics.clipped, statistics.non_finite), (2, 1, 0));
    }
}

// Sharp edge: in low precision, a product can exceed the threshold, and a sum can lose units.
#[test]
fn half_precision_updates_are_clipped_and_summed_in_single_precision() {
    for dtype in [DType::F16, DType::BF16] {
        let mut model = Point::new(&Device::flex().autodiff());
        model.at = model.at.map(|at| at.cast(dtype).detach().require_grad());
        let sum = |units: usize| {
            let thresholds = Thresholds::whole(0.3).unwrap();
            let sum = clip_updates(&thresholds, &model, 0..units, |model: Point, _| {
                UnitUpdate::gradient(&model, model.loss([0.5, 2.0, 1.25]))
            });
            let (_, values) = sum.unwrap().sums.remove(&model.at.id).unwrap();
            assert_eq!(values.dtype(), DType::F32);
            values.into_data().convert::<f64>().try_into_vec::<f64>().unwrap()
        };
        let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let one = sum(1);
        assert!(norm(&one) <= 0.3 && norm(&one) > 0.3 * (1.0 - 1e-5), "{one:?}");
        assert!((norm(&sum(300)) / 90.0 - 1.0).abs() < 1e-5);
    }
}

/// Returns the sum for two parameters of two values each, clipped by `policy`.
fn pair_sum(policy: &dyn Clipping, model: &Pair, units: &[[f32; 4]]) -> Vec<f64> {
    let thresholds = policy.thresholds(0).unwrap();
    let sum = clip_updates(&thresholds, model, units, |model: Pair, unit| {
        let device = model.first.val().device();
        let part = |from: usize| Tensor::<1>::from_floats(&unit[from..from + 2], &device);
        let loss = (model.first.val() * part(0)).sum() + (model.second.val() * part(2)).sum();
        UnitUpdate::gradient(&model, loss.reshape([1]))
    });
    let sum = sum.unwrap();
    let part = |id: ParamId| match sum.sums.get(&id) {
        Some((_, part)) => part.to_data().convert::<f64>().try_into_vec::<f64>().unwrap(),
        None => vec![0.0; 2],
    };
    [part(model.first.id), part(model.second.id)].concat()
}

#[derive(Module, Debug)]
struct Pair {
    first: Param<Tensor<1>>,
    second: Param<Tensor<1>>,
}

fn pair() -> Pair {
    let values = || {
        let zeros = Tensor::zeros([2], &Device::flex().autodiff()).require_grad();
        Param::initialized(ParamId::new(), zeros)
    };
    Pair { first: values(), second: values() }
}

#[test]
fn each_policy_clips_updates_by_its_rule() {
    let model = pair();
    let unit = [3.0, 4.0, 0.0, 0.5];
    let groups = ParameterGroups::per_parameter(&model).unwrap();
    let grouped = GroupedClipping::new(groups, vec![1.0, 2.0]).unwrap();
    let automatic = AutomaticClipping::new();
    let norm = 25.25f64.sqrt();
    let whole = 1.0 / (norm + 0.01);
    for (policy, expected) in [
        (&grouped as &dyn Clipping, [0.6, 0.8, 0.0, 0.5]),
        (&automatic, [3.0 * whole, 4.0 * whole, 0.0, 0.5 * whole]),
    ] {
        let found = pair_sum(policy, &model, &[unit]);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
    // A unit is left out if one part of it is not finite.
    assert_eq!(pair_sum(&grouped, &model, &[[f32::NAN, 0.0, 0.1, 0.0]]), [0.0; 4]);
}

#[test]
fn public_norms_are_measured_on_updates() {
    let model = pair();
    let groups = ParameterGroups::per_parameter(&model).unwrap();
    let public = PublicSource::generated("scales").data(vec![1.0f32, 3.0]).unwrap();
    let norms = public_update_norms(groups, &public, &model, |copy, scale| {
        let first = Tensor::<1>::from_floats([3.0 * scale, 4.0 * scale], &Device::flex());
        let loss = (copy.first.val() * Tensor::from_inner(first)).sum().reshape([1]);
        UnitUpdate::gradient(&copy, loss)
    });
    let means = norms.unwrap().means();
    assert!((means[0] - 10.0).abs() < 1e-5 && means[1] == 0.0, "{means:?}");
}

// Sharp edges: NaN, infinity, and squares that overflow.
#[test]
fn update_that_is_not_finite_contributes_zero() {
    let device = Device::flex().autodiff();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (values, sum) = sum_of(&device, 1.0, &[[bad, 0.0, 0.0], [0.0, 0.5, 0.0]]);
        assert_eq!(values, [0.0, 0.5, 0.0]);
        let statistics = sum.statistics().unwrap().reveal();
        assert_eq!((statistics.examples, statistics.non_finite), (2, 1));
    }
    // The square overflows in single precision, but not in double precision.
    let (values, _) = sum_of(&device, 1.0, &[[1e30, 0.0, 0.0]]);
    assert!((values[0] - 1.0).abs() < 2e-6 && values[0] <= 1.0, "{values:?}");
}

#[test]
fn unit_without_data_is_counted_and_contributes_zero() {
    let device = Device::flex().autodiff();
    let model = Point::new(&device);
    let clipping = Thresholds::whole(1.0).unwrap();
    let sum = clip_updates(&clipping, &model, 0..3, |_: Point, _| Ok(UnitUpdate::zero())).unwrap();
    assert!(sum.sums.is_empty());
    assert_eq!(sum.statistics().unwrap().reveal().examples, 3);
    let none = clip_updates(&clipping, &model, 0..0, |_: Point, _| Ok(UnitUpdate::zero())).unwrap();
    assert_eq!(none.statistics().unwrap().reveal().examples, 0);
}

#[test]
fn update_of_foreign_parameters_is_refused_by_name() {
    let device = Device::flex().autodiff();
    let (model, other) = (Point::new(&device), Point::new(&device));
    let clipping = Thresholds::whole(1.0).unwrap();
    let error = clip_updates(&clipping, &model, 0..1, |_: Point, _| {
        UnitUpdate::gradient(&other, other.loss([1.0; 3]))
    });
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("an update names it, but the model does not train it")
    );
    let error = UnitUpdate::change(&model, &other).unwrap_err().to_string();
    assert!(error.contains("is not the model `before` after local training"), "{error}");
    let untracked = UnitUpdate::gradient(&model, Tensor::ones([2], &device));
    assert!(untracked.unwrap_err().to_string().contains("do not depend on any trained parameter"));
}

// One value would be added to all three.
#[test]
fn update_of_another_size_is_refused_with_both_sizes() {
    let model = Point::new(&Device::flex().autodiff());
    let mut short = model.clone();
    short.at = short.at.map(|at| at.narrow(0, 0, 1).detach().require_grad());
    let clipping = Thresholds::whole(1.0).unwrap();
    let sum = clip_updates(&clipping, &model, 0..1, |_: Point, _| {
        UnitUpdate::gradient(&short, short.at.val())
    });
    let error = sum.unwrap_err().to_string();
    assert!(error.contains("an update has 1 values for its 3"), "{error}");
    let error = UnitUpdate::change(&model, &short).unwrap_err().to_string();
    assert!(error.contains("`at` had 3 values and has 1"), "{error}");
}

#[test]
fn frozen_parameter_is_in_no_update() {
    let device = Device::flex().autodiff();
    let mut model = Point::new(&device);
    model.unused = model.unused.set_require_grad(false);
    let before = model.clone();
    let after =
        Point { at: model.at.map(|at| (at * 2.0).detach().require_grad()), ..before.clone() };
    let change = UnitUpdate::change(&before, &after).unwrap();
    let norms = change.norms(&before).unwrap().reveal();
    assert_eq!(norms.len(), 1);
    assert_eq!(norms[0].0, "at");
    assert!((norms[0].1 - 14f64.sqrt()).abs() < 1e-6);
}

#[test]
fn one_sgd_step_with_rate_one_subtracts_the_gradient() {
    for device in training_devices() {
        let model: Linear = LinearConfig::new(2, 3).init(&device);
        let x = Tensor::<2>::from_floats([[1.0, 2.0], [0.5, -1.0]], &device);
        let losses = |model: &Linear, x: Tensor<2>| {
            model.forward(x).powi_scalar(2).mean_dim(1).flatten::<1>(0, 1)
        };
        let gradient = UnitUpdate::gradient(&model, losses(&model, x.clone())).unwrap();
        let training = LocalTraining::new(SgdConfig::new().init(), 1.0).unwrap();
        let change =
            training.run(private_copy(&model), [x], |model, x| Ok(losses(model, x))).unwrap();
        for (id, gradient) in gradient.values {
            let difference =
                (change.values[&id].clone() - gradient).abs().max().into_scalar::<f64>();
            assert!(difference < 1e-6, "{difference}");
        }
    }
}

#[test]
fn local_steps_match_burns_optimizer() {
    let device = Device::flex().autodiff();
    let model = Point::new(&device);
    let batches = [[1.0, 0.0, -2.0], [0.5, 3.0, 0.0], [1.0, 1.0, 1.0]];
    let training = LocalTraining::new(AdamConfig::new().init(), 0.1).unwrap();
    let change = training.run(private_copy(&model), batches, |model, g| Ok(model.loss(g))).unwrap();

    let mut optimizer = AdamConfig::new().init();
    let mut expected = model.clone();
    for batch in batches {
        let grads = expected.loss(batch).backward();
        let grads = burn::optim::GradientsParams::from_grads(grads, &expected);
        expected = optimizer.step(0.1, expected, grads);
    }
    let expected = model.at.val().inner() - expected.at.val().inner();
    change.values[&model.at.id].to_data().assert_eq(&expected.to_data(), true);
    // A second unit starts with a fresh optimizer.
    let again = training.run(private_copy(&model), batches, |model, g| Ok(model.loss(g))).unwrap();
    again.values[&model.at.id].to_data().assert_eq(&expected.to_data(), true);
}

#[derive(Module, Debug)]
struct Normed {
    fc: Linear,
    norm: BatchNorm,
}

fn normed(device: &Device) -> Normed {
    Normed { fc: LinearConfig::new(2, 3).init(device), norm: BatchNormConfig::new(3).init(device) }
}

impl Normed {
    fn losses(&self, rows: &[[f32; 2]]) -> Tensor<1> {
        let flat: Vec<f32> = rows.iter().flatten().copied().collect();
        let x = Tensor::<1>::from_floats(flat.as_slice(), &self.fc.weight.val().device());
        let x = x.reshape([rows.len(), 2]);
        let output = self.norm.forward(self.fc.forward(x));
        (output.powi_scalar(3) + 1.0).mean_dim(1).flatten(0, 1)
    }
}

fn statistics(model: &Normed) -> Vec<f32> {
    let synced = model.norm.running_mean.value_sync();
    synced.into_data().try_into_vec().unwrap()
}

// Sharp edges: running statistics and buffers are not released.
#[test]
fn running_statistics_of_a_unit_stay_in_its_copy() {
    for device in training_devices() {
        let model = normed(&device);
        let rows = [[9.0, 1.0], [7.0, -5.0], [8.0, 2.0]];
        let clipping = Thresholds::whole(1.0).unwrap();
        let mut seen = Vec::new();
        let sum = clip_updates(&clipping, &model, 0..2, |model: Normed, _| {
            seen.push(statistics(&model));
            let update = UnitUpdate::gradient(&model, model.losses(&rows));
            // Twice, because a running state delays its last update.
            let _ = model.losses(&rows);
            assert_ne!(statistics(&model), [0.0; 3]);
            update
        });
        assert_eq!(sum.unwrap().statistics().unwrap().reveal().clipped, 2);
        assert_eq!(seen, [[0.0; 3], [0.0; 3]]);
        assert_eq!(statistics(&model), [0.0; 3]);
    }
}

#[test]
fn private_copy_keeps_identities_values_and_frozen_flags() {
    for device in training_devices() {
        let mut model = normed(&device);
        model.fc = model.fc.no_grad();
        let copy = private_copy(&model);
        assert_eq!(copy.fc.weight.id, model.fc.weight.id);
        assert!(!copy.fc.weight.is_require_grad() && copy.norm.gamma.is_require_grad());
        assert!(copy.norm.training.val().is_enabled());
        copy.fc.weight.to_data().assert_eq(&model.fc.weight.to_data(), true);
        let frozen = private_copy(&normed(&device).freeze());
        assert!(!frozen.norm.training.val().is_enabled());
    }
}

#[test]
fn public_statistics_follow_from_the_public_batches() {
    let device = Device::flex().autodiff();
    let model = Normed {
        norm: BatchNormConfig::new(3).with_momentum(1.0).init(&device),
        ..normed(&device)
    };
    let rows = [[1.0, 2.0], [3.0, -2.0]];
    let expected = model.fc.forward(Tensor::<2>::from_floats(rows, &device)).mean_dim(0);
    let batches = vec![[[9.0, 9.0], [1.0, 0.0]], rows];
    let batches = PublicSource::generated("rows").data(batches).unwrap();
    // The batches take turns, so the last of four calls has the second one.
    let public = public_statistics(model.clone(), &batches, 4, |model, rows| {
        let _ = model.losses(rows);
    });
    let found = public.norm.running_mean.value();
    found.into_data().assert_eq(&expected.flatten::<1>(0, 1).into_data(), false);
    assert_eq!(statistics(&model), [0.0; 3]);
    assert_eq!(public.fc.weight.id, model.fc.weight.id);
}

#[test]
fn error_of_one_unit_is_returned() {
    let model = Point::new(&Device::flex().autodiff());
    let clipping = Thresholds::whole(1.0).unwrap();
    let failed = clip_updates(&clipping, &model, 0..2, |_: Point, unit| match unit {
        0 => Ok(UnitUpdate::zero()),
        _ => Err(DpError::invalid("unit", "planted")),
    });
    assert_eq!(failed.unwrap_err().to_string(), "unit planted");
}

fn component() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -3.0f32..3.0,
        1 => Just(0.0),
        1 => Just(1e30),
        1 => Just(-1e-30),
        1 => Just(f32::NAN),
        1 => Just(f32::INFINITY),
    ]
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn neighboring_unit_moves_the_sum_by_at_most_its_sensitivity(
        units in proptest::collection::vec(prop::array::uniform3(component()), 1..6),
        other in prop::array::uniform3(component()),
        clip in 0.1f64..10.0,
    ) {
        let device = Device::flex().autodiff();
        let (whole, _) = sum_of(&device, clip, &units);
        prop_assert!(whole.iter().all(|value| value.is_finite()));
        let (without, _) = sum_of(&device, clip, &units[1..]);
        // The sum is rounded in single precision; the terms are at most the threshold.
        let rounding = 1.0 + 4.0 * f64::from(f32::EPSILON) * units.len() as f64;
        prop_assert!(distance(&whole, &without) <= clip * rounding);
        let mut replaced = units.clone();
        replaced[0] = other;
        let (replaced, _) = sum_of(&device, clip, &replaced);
        prop_assert!(distance(&whole, &replaced) <= 2.0 * clip * rounding);
    }

    #[test]
    fn neighboring_unit_moves_the_sum_of_any_policy_by_its_sensitivity(
        units in proptest::collection::vec(prop::array::uniform4(component()), 1..5),
        other in prop::array::uniform4(component()),
    ) {
        let model = pair();
        let groups = ParameterGroups::per_parameter(&model).unwrap();
        let policies: [Box<dyn Clipping>; 2] = [
            Box::new(GroupedClipping::new(groups, vec![0.3, 2.0]).unwrap()),
            Box::new(AutomaticClipping::new()),
        ];
        for policy in policies {
            let thresholds = policy.thresholds(0).unwrap();
            let rounding = 1.0 + 4.0 * f64::from(f32::EPSILON) * units.len() as f64;
            let bound = |relation| thresholds.sensitivity(relation) * rounding;
            let whole = pair_sum(&policy, &model, &units);
            let without = pair_sum(&policy, &model, &units[1..]);
            prop_assert!(distance(&whole, &without) <= bound(NeighboringRelation::AddOrRemoveOne));
            let mut replaced = units.clone();
            replaced[0] = other;
            let replaced = pair_sum(&policy, &model, &replaced);
            prop_assert!(distance(&whole, &replaced) <= bound(NeighboringRelation::ReplaceOne));
        }
    }
}
