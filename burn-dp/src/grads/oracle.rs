//! The oracle of every rule: the loop over single examples on plain Burn layers.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::nn::Linear;
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use proptest::prelude::ProptestConfig;

use super::directions::Directions;
use super::precision::has_coarse_products;
use super::{MemoryBound, PrivateBackward};
use crate::baselines::{microbatch, reweight};
use crate::clipping::{ClippedSum, Clipping, FlatClipping};
use crate::device_read::blocking;
use crate::model::{ParameterGroups, for_each_parameter};
use crate::nn::{IntoPrivate, Private};

/// A model of two linear layers.
#[derive(Module, Debug)]
pub(super) struct TwoLayers<L> {
    pub(super) first: L,
    pub(super) second: L,
}

impl TwoLayers<Linear> {
    /// Returns the private twin.
    pub(super) fn private(&self) -> TwoLayers<Private<Linear>> {
        TwoLayers { first: self.first.clone().private(), second: self.second.clone().private() }
    }
}

/// Returns the configuration of a property test with this many cases.
pub(super) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

/// Gradients of the trained parameters, flattened.
pub(super) type Flat = HashMap<ParamId, Vec<f64>>;

/// Returns a tensor that a number determines, equal on every backend.
pub(crate) fn numbers<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 2.0
        })
        .collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Returns the model with parameters that a number determines.
pub(super) fn numbered<M: Module>(model: M, seed: u64) -> M {
    struct Number(u64);
    impl ModuleMapper for Number {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.0 += 1;
            let trained = param.base().is_require_grad();
            param.map(|old| numbers(old.dims(), self.0, &old.device()).set_require_grad(trained))
        }
    }
    model.map(&mut Number(1000 * seed))
}

/// Compares two tensors, shape included.
#[track_caller]
pub(super) fn assert_equal<const D: usize>(found: Tensor<D>, expected: Tensor<D>, tolerance: f64) {
    assert_eq!(found.dims(), expected.dims());
    let tolerance = self::tolerance(&found.device(), tolerance);
    for (found, expected) in host(found).into_iter().zip(host(expected)) {
        let difference = (found - expected).abs();
        assert!(difference <= tolerance * expected.abs().max(1.0), "{found} is not {expected}");
    }
}

pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.into_data().convert_dtype(burn::tensor::DType::F64);
    data.try_into_vec::<f64>().unwrap()
}

/// Returns the ordinary gradients of a model.
pub(super) fn ordinary<M: Module>(model: &M, loss: Tensor<1>) -> Flat {
    let grads = loss.sum().backward();
    let mut flat = Flat::new();
    for_each_parameter(model, |_, parameter| {
        if parameter.is_trained {
            let values = match parameter.value.gradient(&grads) {
                Some(gradient) => host(gradient),
                None => vec![0.0; parameter.value.shape().num_elements()],
            };
            flat.insert(parameter.id, values);
        }
    });
    flat
}

pub(super) fn norm(gradient: &Flat) -> f64 {
    gradient.values().flatten().map(|value| value * value).sum::<f64>().sqrt()
}

/// Returns `Σ_i min(1, C / ‖g_i‖) g_i`, computed by one ordinary backward pass per example.
pub(super) fn clipped_by_loop<M: Module>(
    model: &M,
    examples: usize,
    clipping_norm: f64,
    loss_of: impl Fn(&M, usize) -> Tensor<1>,
) -> Flat {
    let mut sum = Flat::new();
    for example in 0..examples {
        let gradient = ordinary(model, loss_of(model, example));
        let coefficient = (clipping_norm / norm(&gradient)).min(1.0);
        for (id, values) in gradient {
            let total = sum.entry(id).or_insert_with(|| vec![0.0; values.len()]);
            total.iter_mut().zip(values).for_each(|(total, value)| *total += coefficient * value);
        }
    }
    sum
}

pub(super) fn flat_sum(sum: ClippedSum) -> Flat {
    sum.sums.into_iter().map(|(id, (_, tensor))| (id, host(tensor))).collect()
}

/// Returns all ways to compute one clipped sum.
pub(super) fn backwards() -> Vec<PrivateBackward> {
    vec![
        PrivateBackward::new(),
        PrivateBackward::new().with_materialized_gradients(),
        PrivateBackward::new().with_memory_bound(MemoryBound::bytes(0)).deferred(),
        PrivateBackward::new().deferred(),
    ]
}

/// Compares the product of each example's gradient with a fixed direction, in all ways to compute
/// it, with the ordinary gradient of this example alone.
pub(super) fn check_products<M: Module>(model: &M, losses: impl Fn() -> Tensor<1>) {
    let (groups, mut directions) =
        (ParameterGroups::per_parameter(model).unwrap(), Directions::default());
    let device = losses().device();
    let products: Vec<Vec<Vec<f64>>> = backwards()
        .into_iter()
        .map(|backward| {
            let grads = backward.run(losses(), model).unwrap();
            blocking(async { grads.products(&groups, &mut directions).await }, "").unwrap()
        })
        .collect();
    let tolerance = tolerance(&device, 1e-4);
    for example in 0..losses().dims()[0] {
        let gradient = ordinary(model, losses().narrow(0, example, 1));
        for_each_parameter(model, |path, parameter| {
            let Some(gradient) = gradient.get(&parameter.id) else { return };
            let group = groups.index_of(path).unwrap();
            let direction = host(directions.of(group, gradient.len(), &device));
            let terms = gradient.iter().zip(direction).map(|(a, b)| a * b);
            let (expected, scale) = terms.fold((0.0, 0.0), |(sum, scale): (f64, f64), term| {
                (sum + term, scale.max(term.abs()))
            });
            let roundings = (gradient.len() as f64).sqrt();
            for found in products.iter().map(|products| products[group][example]) {
                let difference = (found - expected).abs();
                assert!(
                    difference <= tolerance * scale * roundings,
                    "{path} {example}: {found} is not {expected}"
                );
            }
        });
    }
}

/// Returns one loss per example that weighs every output differently.
pub(super) fn losses<const D: usize>(output: Tensor<D>) -> Tensor<1> {
    let dims = output.dims();
    let rows: Tensor<2> = output.reshape([dims[0], dims[1..].iter().product()]);
    let weights = numbers([1, rows.dims()[1]], 99, &rows.device());
    ((rows + weights).powi_scalar(2)).sum_dim(1).reshape([dims[0]])
}

/// Replaces the values of a parameter, so that every backend has the same.
pub(super) fn set<const D: usize>(parameter: Param<Tensor<D>>, seed: u64) -> Param<Tensor<D>> {
    parameter.map(|tensor| numbers(tensor.dims(), seed, &tensor.device()).require_grad())
}

/// Returns a tolerance for values of `device`: a larger one if it multiplies in TF32.
fn tolerance(device: &Device, single: f64) -> f64 {
    if has_coarse_products(device) { 2e-2 } else { single }
}

/// The distance between gradients that TF32 explains, relative to their norm. It is smaller than
/// the contribution of most single examples.
const ROUNDING_OF_TF32: f64 = 0.05;

/// The same for clipped sums. The margin on a norm that is a sum over positions grows with their
/// number, so the examples are clipped more: by about a tenth for 30 positions. The loss of one of
/// up to six clipped examples is still found.
const MARGINS_OF_TF32: f64 = 0.15;

/// Compares clipped sums that were computed on `device`.
#[track_caller]
pub(super) fn assert_close(device: &Device, found: &Flat, expected: &Flat, context: &str) {
    assert_within(device, MARGINS_OF_TF32, found, expected, context);
}

/// Compares each value with the norm of the gradient, or, on a device that multiplies in TF32, the
/// norm of the whole difference: even a gradient of zeros would pass a loose test of each value.
///
/// - `coarse`: the tolerance on such a device
#[track_caller]
fn assert_within(device: &Device, coarse: f64, found: &Flat, expected: &Flat, context: &str) {
    let scale = norm(expected).max(1e-12);
    let mut differences = Flat::new();
    for (&id, expected) in expected {
        let zeros = vec![0.0; expected.len()];
        let found = found.get(&id).unwrap_or(&zeros);
        assert_eq!(found.len(), expected.len(), "{context}");
        differences.insert(id, found.iter().zip(expected).map(|(a, b)| a - b).collect());
    }
    for (id, values) in found {
        assert!(expected.contains_key(id) || values.iter().all(|&v| v == 0.0), "{context}");
    }
    let difference = norm(&differences);
    let is_close = match has_coarse_products(device) {
        true => difference <= coarse * scale,
        false => differences.values().flatten().all(|value| value.abs() <= 1e-4 * scale),
    };
    assert!(is_close, "{context}: differs by {difference}, where the expected norm is {scale}");
}

/// Compares the clipped sum of a private model with the loop over the examples on its plain twin,
/// for every way to compute it and for thresholds that clip none, some and all examples.
#[track_caller]
pub(super) fn check<P: Module, M: Module, const D: usize>(
    private: &P,
    plain: &M,
    input: Tensor<D>,
    private_losses: impl Fn(&P, Tensor<D>) -> Tensor<1>,
    plain_losses: impl Fn(&M, Tensor<D>) -> Tensor<1>,
) {
    let examples = input.dims()[0];
    let single = |model: &M, example| plain_losses(model, input.clone().narrow(0, example, 1));
    let norms: Vec<f64> =
        (0..examples).map(|example| norm(&ordinary(plain, single(plain, example)))).collect();
    let largest = norms.iter().copied().fold(1e-6, f64::max);
    let smallest = norms.iter().copied().fold(f64::INFINITY, f64::min).max(1e-6);

    let device = input.device();
    for (clipping_norm, coarse) in [
        (2.0 * largest, ROUNDING_OF_TF32),
        ((smallest * largest).sqrt(), MARGINS_OF_TF32),
        (0.5 * smallest, MARGINS_OF_TF32),
    ] {
        let expected = clipped_by_loop(plain, examples, clipping_norm, single);
        let compare = |found: ClippedSum, context: &str| {
            let context = format!("{device:?}, threshold {clipping_norm}, {context}");
            assert_within(&device, coarse, &flat_sum(found), &expected, &context);
        };
        for backward in backwards() {
            let losses = private_losses(private, input.clone());
            let grads = backward.run(losses, private).unwrap();
            let found = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
            let statistics = found.statistics().unwrap().reveal();
            assert_eq!(statistics.examples, examples);
            assert_eq!(statistics.non_finite, 0);
            compare(found, &format!("{backward:?}"));
        }
        let clipping = FlatClipping::new(clipping_norm).unwrap();
        let twice = reweight(&clipping, private, |model| private_losses(model, input.clone()));
        compare(twice.unwrap(), "reweight");
        let single =
            |model: &P, example| private_losses(model, input.clone().narrow(0, example, 1));
        let each = microbatch(&clipping, private, examples, single).unwrap();
        compare(each, "microbatch");
    }

    let output = private_losses(private, input.clone());
    let expected = host(plain_losses(plain, input.clone()));
    let tolerance = tolerance(&device, 1e-5);
    for (found, expected) in host(output).into_iter().zip(expected) {
        assert!(
            (found - expected).abs() <= tolerance * expected.abs().max(1e-3),
            "{device:?}, losses: {found}, expected {expected}"
        );
    }

    // Without a recording the private model is the plain one.
    let found = ordinary(private, private_losses(private, input.clone()));
    let expected = ordinary(plain, plain_losses(plain, input));
    let context = format!("{device:?}, ordinary backward");
    assert_within(&device, ROUNDING_OF_TF32, &found, &expected, &context);
}

/// Checks two twins that compute their losses by the same expression.
macro_rules! check_twins {
    ($private:expr, $plain:expr, $input:expr, |$model:ident, $x:ident| $losses:expr) => {
        $crate::grads::oracle::check(
            $private,
            $plain,
            $input,
            |$model, $x| $losses,
            |$model, $x| $losses,
        )
    };
}
pub(super) use check_twins;

/// Checks a layer whose private twin computes its losses by the same expression.
macro_rules! check_layer {
    ($layer:expr, $input:expr, |$model:ident, $x:ident| $losses:expr) => {{
        let layer = $layer;
        let private = $crate::nn::IntoPrivate::private(layer.clone());
        $crate::grads::oracle::check_twins!(&private, &layer, $input, |$model, $x| $losses);
    }};
}
pub(super) use check_layer;

/// Checks a convolution with parameters and an input that numbers determine.
macro_rules! check_convolution {
    ($config:expr, $input:expr, $device:expr) => {{
        let mut layer = $config.init($device);
        layer.weight = $crate::grads::oracle::set(layer.weight, 17);
        layer.bias = layer.bias.map(|bias| $crate::grads::oracle::set(bias, 18));
        $crate::grads::oracle::check_layer!(
            layer,
            $crate::grads::oracle::numbers($input, 23, $device),
            |model, x| $crate::grads::oracle::losses(model.forward(x))
        );
    }};
}
pub(super) use check_convolution;

#[test]
fn numbers_do_not_touch_the_generator_of_the_device() {
    let device = Device::default();
    let a = host(numbers([4], 1, &device));
    let _ = Tensor::<1>::random([3], Distribution::Default, &device);
    assert_eq!(a, host(numbers([4], 1, &device)));
}
