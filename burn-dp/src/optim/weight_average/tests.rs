#![allow(clippy::unwrap_used)]

use burn::module::Param;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, FloatDType, Int, TensorData};

use super::*;

const DECAY: f64 = 0.9;

fn device() -> Device {
    Device::flex().autodiff()
}

fn values<const D: usize>(param: &Param<Tensor<D>>) -> Vec<f32> {
    param.val().cast(FloatDType::F32).into_data().try_into_vec().unwrap()
}

fn set<const D: usize>(param: Param<Tensor<D>>, value: f64) -> Param<Tensor<D>> {
    param.map(|tensor| {
        let trained = tensor.is_require_grad();
        tensor.inner().full_like(value).autodiff().set_require_grad(trained)
    })
}

/// One trained weight and a frozen one.
#[derive(Module, Debug)]
struct Net {
    trained: Linear,
    frozen: Linear,
    steps: Param<Tensor<1, Int>>,
}

fn net(value: f64) -> Net {
    let layer = || LinearConfig::new(1, 1).with_bias(false).init(&device());
    let mut frozen = layer().no_grad();
    frozen.weight = set(frozen.weight, value);
    let mut trained = layer();
    trained.weight = set(trained.weight, value);
    let steps = Tensor::<1, Int>::from_ints([value as i32], &device());
    Net { trained, frozen, steps: Param::initialized(ParamId::new(), steps) }
}

fn step(i: u64) -> f64 {
    (i as f64 * 0.7).sin() * 3.0
}

/// The average of `steps` steps, and the net after the last one with it.
fn after(mut average: WeightAverage, steps: u64) -> (WeightAverage, Net) {
    (0..steps).for_each(|i| average.update(&net(step(i))).unwrap());
    let averaged = average.averaged(net(step(steps - 1))).unwrap();
    (average, averaged)
}

fn assert_close(found: f32, expected: f64) {
    assert!(
        (f64::from(found) - expected).abs() < 1e-6 * expected.abs().max(1.0),
        "{found} {expected}"
    );
}

#[test]
fn bias_correction_gives_the_weighted_mean_of_all_steps() {
    for steps in [1, 2, 3, 50] {
        let average = WeightAverage::new(DECAY).unwrap().with_bias_correction();
        let (average, averaged) = after(average, steps);
        let weight = |i: u64| DECAY.powi((steps - 1 - i) as i32);
        let sum: f64 = (0..steps).map(|i| weight(i) * step(i)).sum();
        let expected = sum / (0..steps).map(weight).sum::<f64>();
        assert_close(values(&averaged.trained.weight)[0], expected);
        assert_eq!(average.steps(), steps);
    }
}

#[test]
fn the_warm_up_follows_the_formula_and_ends_at_the_decay() {
    // (1 + n) / (10 + n) passes 0.9 at n = 80.
    for steps in [1, 2, 3, 10, 200] {
        let (_, averaged) = after(WeightAverage::new(DECAY).unwrap(), steps);
        let mut expected = step(0);
        for n in 1..steps {
            let decay = DECAY.min((1 + n) as f64 / (10 + n) as f64);
            expected = decay * expected + (1.0 - decay) * step(n);
        }
        assert_close(values(&averaged.trained.weight)[0], expected);
    }
    let average = WeightAverage::new(DECAY).unwrap();
    assert_eq!(average.decay(), DECAY);
    assert!((average.share(79) - 9.0 / 89.0).abs() < 1e-12);
    assert_eq!(average.share(1_000), 1.0 - DECAY);
}

#[test]
fn decay_zero_is_the_last_step_and_constant_weights_are_their_average() {
    let zero = WeightAverage::new(0.0).unwrap();
    for average in [zero.clone(), zero.with_bias_correction()] {
        let (_, averaged) = after(average, 9);
        assert_eq!(values(&averaged.trained.weight), [step(8) as f32]);
    }
    let mut average = WeightAverage::new(0.9999).unwrap();
    (0..30).for_each(|_| average.update(&net(0.1)).unwrap());
    let averaged = average.averaged(net(7.0)).unwrap();
    assert_eq!(values(&averaged.trained.weight), [0.1f32]);
}

#[test]
fn frozen_parameters_and_integers_do_not_change() {
    let (_, averaged) = after(WeightAverage::new(DECAY).unwrap(), 5);
    assert_ne!(values(&averaged.trained.weight), [step(4) as f32]);
    assert_eq!(values(&averaged.frozen.weight), [step(4) as f32]);
    let steps = averaged.steps.val().into_data().iter::<i64>().collect::<Vec<_>>();
    assert_eq!(steps, [step(4) as i64]);
    // It can be trained further, and frozen parameters are still frozen.
    assert!(averaged.trained.weight.is_require_grad());
    assert!(!averaged.frozen.weight.is_require_grad());
    assert!(averaged.trained.weight.val().is_autodiff());
}

#[test]
fn averages_begin_when_thawed_and_end_when_frozen() {
    let mut average = WeightAverage::new(DECAY).unwrap();
    average.update(&net(1.0)).unwrap();
    let mut thawed = net(5.0);
    thawed.frozen.weight = thawed.frozen.weight.set_require_grad(true);
    average.update(&thawed).unwrap();
    assert_eq!(values(&average.averaged(net(9.0)).unwrap().frozen.weight), [5.0f32]);
    average.update(&net(1.0)).unwrap();
    assert_eq!(values(&average.averaged(net(9.0)).unwrap().frozen.weight), [9.0f32]);
}

/// A table that is used at both ends.
#[derive(Module, Debug)]
struct Tied {
    input: Embedding,
    output: Embedding,
}

fn tied(value: f64) -> Tied {
    let mut input = EmbeddingConfig::new(2, 2).init(&device());
    input.weight = set(input.weight, value);
    Tied { output: input.clone(), input }
}

#[test]
fn the_copies_of_a_parameter_are_averaged_once_and_stay_equal() {
    let mut average = WeightAverage::new(DECAY).unwrap().with_bias_correction();
    let models = [tied(1.0), tied(4.0)];
    models.iter().for_each(|model| average.update(model).unwrap());
    assert_eq!(average.averages.keys().collect::<Vec<_>>(), ["input.weight"]);
    let [_, last] = models;
    let averaged = average.averaged(last).unwrap();
    let expected = (0.9 + 4.0) / 1.9;
    assert_close(values(&averaged.input.weight)[0], expected);
    assert_eq!(values(&averaged.input.weight), values(&averaged.output.weight));
}

#[test]
fn half_precision_is_averaged_in_single_precision() {
    let half = |value: f64| {
        let mut layer = LinearConfig::new(1, 1).with_bias(false).init(&device());
        layer.weight = layer.weight.map(|tensor| {
            let value = tensor.inner().full_like(value).cast(FloatDType::F16);
            value.autodiff().require_grad()
        });
        layer
    };
    // Each step adds a hundredth of the distance between two neighboring values in half precision.
    let mut average = WeightAverage::new(0.99).unwrap().with_bias_correction();
    let next = 1.0 + f64::from(2.0f32.powi(-10));
    (0..200).for_each(|i| average.update(&half(if i < 100 { 1.0 } else { next })).unwrap());
    let found = average.averages["weight"].values.to_data().iter::<f32>().next().unwrap();
    let weight = |i: i32| 0.99f64.powi(199 - i);
    let late: f64 = (100..200).map(weight).sum::<f64>() / (0..200).map(weight).sum::<f64>();
    assert_close(found, 1.0 + late * (next - 1.0));
    assert!(found > 1.0 && f64::from(found) < next);
    let averaged = average.averaged(half(0.0)).unwrap();
    assert_eq!(averaged.weight.val().dtype(), DType::F16);
}

#[test]
fn double_precision_is_averaged_in_double_precision() {
    let mut layer = LinearConfig::new(1, 1).with_bias(false).init(&device());
    let data = TensorData::from([[0.1f64]]);
    layer.weight =
        layer.weight.map(|_| Tensor::from_data(data, (&device(), DType::F64)).require_grad());
    let mut average = WeightAverage::new(DECAY).unwrap();
    average.update(&layer).unwrap();
    let found = average.averages["weight"].values.to_data();
    assert_eq!(found.try_into_vec::<f64>().unwrap(), [0.1]);
}

#[test]
fn another_model_is_refused_with_the_path() {
    let mut average = WeightAverage::new(DECAY).unwrap();
    average.update(&net(1.0)).unwrap();
    let error = average.averaged(tied(1.0)).unwrap_err().to_string();
    assert!(error.contains("trained.weight"), "{error}");
    let mut other = net(1.0);
    other.trained = LinearConfig::new(3, 1).with_bias(false).init(&device());
    let error = average.averaged(other.clone()).unwrap_err().to_string();
    assert!(error.contains("3 values") && error.contains("averaged with 1"), "{error}");
    assert!(average.update(&other).is_err());
    assert_eq!(average.steps(), 1);
}

#[test]
fn a_decay_that_is_none_is_refused() {
    for decay in [-0.1, 1.0, 1.5, f64::NAN] {
        let error = WeightAverage::new(decay).unwrap_err().to_string();
        assert!(error.contains("decay") && error.contains(&decay.to_string()), "{error}");
    }
}

#[test]
fn an_average_survives_its_record_and_damage_is_refused() {
    let (mut average, _) = after(WeightAverage::new(DECAY).unwrap().with_bias_correction(), 3);
    let double = Tensor::from_data(TensorData::from([0.1f64, -7.0]), (&device(), DType::F64));
    average.averages.insert("double".into(), Average { steps: 2, values: double.inner() });
    for wrong in
        [(0, Tensor::<1>::zeros([2], &device())), (2, Tensor::zeros([2], (&device(), DType::F16)))]
    {
        let mut damaged = average.clone();
        damaged
            .averages
            .insert("wrong".into(), Average { steps: wrong.0, values: wrong.1.inner() });
        let error = WeightAverage::from_bytes(&damaged.to_bytes().unwrap()).unwrap_err();
        assert!(error.to_string().contains("values of wrong are not an average"), "{error}");
    }
    let bytes = average.to_bytes().unwrap();
    let found = WeightAverage::from_bytes(&bytes).unwrap();
    assert_eq!(found.to_bytes().unwrap(), bytes);
    assert_eq!(found.to_string(), average.to_string());
    for cut in 0..bytes.len() {
        assert!(WeightAverage::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(WeightAverage::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    assert!(WeightAverage::from_bytes(&[&[9], &bytes[1..]].concat()).is_err());
}

#[test]
fn a_saved_average_continues_as_if_it_had_not_been_saved() {
    let new = || WeightAverage::new(DECAY).unwrap();
    let (whole, _) = after(new(), 9);
    let (half, _) = after(new(), 4);
    let mut half = WeightAverage::from_bytes(&half.to_bytes().unwrap()).unwrap();
    (4..9).for_each(|i| half.update(&net(step(i))).unwrap());
    assert_eq!(half.to_bytes().unwrap(), whole.to_bytes().unwrap());
}
