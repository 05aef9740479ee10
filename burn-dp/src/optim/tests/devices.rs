//! The release on a device and on the host.

use burn::module::{Module, ParamId};
use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp_accountant::correlated_noise::Strategy;

use super::{config, layer_on};
use crate::DpError;
use crate::clipping::{ClippedSum, QuantileClipping};
use crate::device_read::{reads, wait};
use crate::model::for_each_trained;
use crate::nn::Private;
use crate::noise::CorrelatedNoise;
use crate::optim::release::Release;
use crate::optim::releases::Mark;
use crate::optim::sums::Placement;
use crate::random::{InsecureSeed, Key, NoiseSource, Purpose};
use crate::test_devices::devices;

const PLACEMENTS: [Placement; 3] = [Placement::Host, Placement::Apart, Placement::Together];

#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    second: Private<Linear>,
}

impl Net {
    fn new(device: &Device) -> Self {
        Self { first: layer_on(device, 40, 60, 1), second: layer_on(device, 60, 3, 2) }
    }
}

/// Returns the bits and the mark of a release of the same sums on a device. No example reaches the
/// last parameter.
fn release(
    key: &Key,
    device: &Device,
    placement: Placement,
    last: f32,
) -> Result<(Vec<Vec<u32>>, Mark, usize), DpError> {
    let mut source = NoiseSource::resume(key.clone(), 2);
    release_step((&mut source, 2), device, placement, last, None)
}

fn release_step(
    (source, step): (&mut NoiseSource, u64),
    device: &Device,
    placement: Placement,
    last: f32,
    correlated: Option<&mut CorrelatedNoise>,
) -> Result<(Vec<Vec<u32>>, Mark, usize), DpError> {
    let net = Net::new(&device.clone().autodiff());
    let mut sums: Vec<(ParamId, (usize, Tensor<1>))> = Vec::new();
    for_each_trained(&net, |_, parameter| {
        let number = parameter.value.shape().num_elements();
        let mut values: Vec<f32> =
            (0..number).map(|i| (i as f32 * 0.7 + sums.len() as f32).sin()).collect();
        values[number - 1] = last;
        let values = Tensor::from_data(TensorData::new(values, [number]), device);
        sums.push((parameter.id, (0, values)));
    });
    sums.pop();
    let thresholds = config().init().unwrap().clipping().thresholds(0)?;
    let noise = thresholds.noise(1.3, 8.0)?;
    let coefficients = thresholds.coefficients(&[], |_| true);
    let sum = ClippedSum::new(sums, thresholds.clone(), coefficients);
    let step = source.begin_step(Purpose::Gradient, step)?;
    let prepared = Release::new(&net, &thresholds, &noise, 8.0, 1.0)?;
    let bound = wait(prepared.bind(&net, sum, step, None, placement))?;
    let (mark, on_host) = (bound.mark(), bound.lengths().into_iter().sum());
    let (grads, _) = wait(bound.release(&net, None, correlated))?;
    let (grads, mut bits) = (grads.unwrap(), Vec::new());
    for_each_trained(&net, |_, parameter| {
        let grad = parameter.value.registered(parameter.id, &grads).unwrap();
        let grad: Vec<f32> = grad.into_data().try_into_vec().unwrap();
        bits.push(grad.into_iter().map(f32::to_bits).collect());
    });
    Ok((bits, mark, on_host))
}

#[test]
fn a_release_has_the_same_bits_on_every_device() {
    for key in [Key::from_os().unwrap(), InsecureSeed(4).into()] {
        let (expected, mark, lengths) =
            release(&key, &Device::flex(), Placement::Together, 0.5).unwrap();
        assert_eq!(lengths, 40 * 60 + 60 + 60 * 3 + 3, "the host releases");
        for device in devices() {
            let on_device = crate::ops::has_release(&device);
            for placement in PLACEMENTS {
                let found = release(&key, &device, placement, 0.5).unwrap();
                assert_eq!(found.0, expected, "{device:?}");
                assert_eq!(found.1, mark, "{device:?}");
                assert_eq!(found.2 == 0, on_device && placement != Placement::Host);
            }
            // One bit of a sum changes the noise of a secret key everywhere.
            let other = release(&key, &device, Placement::Together, 0.5f32.next_up()).unwrap();
            assert_ne!(other.1, mark);
            let differing = other.0[3].iter().zip(&expected[3]).filter(|(a, b)| a != b).count();
            assert_eq!(differing == 3, key.is_secure(), "{device:?}");
        }
    }
}

#[test]
fn sums_that_are_not_finite_are_refused_on_every_device() {
    let key = Key::from_os().unwrap();
    for device in devices() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for placement in PLACEMENTS {
                let error = release(&key, &device, placement, bad).unwrap_err();
                assert!(matches!(error, DpError::NotFinite { what: "sums" }), "{error}");
            }
        }
    }
}

#[test]
fn correlated_noise_has_the_same_bits_on_every_device() {
    let key = Key::from_os().unwrap();
    for strategy in [
        Strategy::banded_toeplitz(6, &[1.0, 0.5, 0.2]).unwrap(),
        Strategy::buffered(6, &[0.9, 0.5], &[0.2, 0.1]).unwrap(),
    ] {
        let run = |device: &Device, placement: Placement| -> Vec<_> {
            let mut source = NoiseSource::resume(key.clone(), 0);
            let mut noise = CorrelatedNoise::new(&strategy, usize::MAX);
            let mut step = |step: u64| {
                // The third sum is not finite. Its noise still enters the noise of later steps.
                let last = if step == 2 { f32::INFINITY } else { 0.1 * step as f32 };
                let noise = Some(&mut noise);
                release_step((&mut source, step), device, placement, last, noise).ok()
            };
            (0..5).map(|number| step(number).map(|(bits, mark, _)| (bits, mark))).collect()
        };
        let expected = run(&Device::flex(), Placement::Together);
        let is_released: Vec<bool> = expected.iter().map(Option::is_some).collect();
        assert_eq!(is_released, [true, true, false, true, true]);
        for device in devices() {
            for placement in PLACEMENTS {
                assert!(run(&device, placement) == expected, "{device:?} {strategy}");
            }
        }
    }
}

/// A step with a threshold that adapts to a count.
#[test]
fn a_backward_pass_reads_nothing_from_a_device_and_a_step_reads_once() {
    for device in devices().into_iter().filter(crate::ops::has_kernels) {
        let device = device.autodiff();
        let mut net = Net::new(&device);
        let config = config().with_clipping(QuantileClipping::new(0.5).unwrap());
        let plan = config.init().unwrap();
        let sampler = plan.sampler().unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        for step in 0..3 {
            let draw = sampler.draw(step).unwrap();
            let before = reads();
            let losses = |net: &Net, units: Vec<usize>| {
                let x = Tensor::<2>::ones([units.len(), 40], &device) * (units.len() as f32).sin();
                let y = net.second.forward(net.first.forward(x).tanh());
                y.powi_scalar(2).sum_dim(1).reshape([-1])
            };
            optim.backward(&net, &draw, losses).unwrap();
            let in_backward = reads() - before;
            net = optim.step(0.1, net, draw).unwrap();
            let in_step = reads() - before - in_backward;
            // The first step tests that losses and gradients are independent.
            if step > 0 {
                assert_eq!((in_backward, in_step), (0, 1), "step {step}");
            }
        }
    }
}
