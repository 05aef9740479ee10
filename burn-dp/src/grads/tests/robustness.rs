use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};

use crate::clipping::{Clipping, FlatClipping};
use crate::device_read::blocking;
use crate::grads::PrivateBackward;
use crate::grads::has_coarse_products;
use crate::grads::oracle::{assert_close, backwards, clipped_by_loop, flat_sum, norm, numbers};
use crate::model::ParameterGroups;
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::training_devices;

fn model(device: &Device) -> (Private<Linear>, Linear) {
    let plain = LinearConfig::new(3, 2).init(device);
    (plain.clone().private(), plain)
}

fn losses(model: &Private<Linear>, x: Tensor<3>) -> Tensor<1> {
    model.forward(x).powi_scalar(2).sum_dims(&[1, 2]).reshape([-1])
}

fn plain_losses(model: &Linear, x: Tensor<3>) -> Tensor<1> {
    model.forward(x).powi_scalar(2).sum_dims(&[1, 2]).reshape([-1])
}

/// Returns four examples; the values of the second are `value`.
fn planted(positions: usize, value: f32, device: &Device) -> Tensor<3> {
    let x = numbers([4, positions, 3], 1, device);
    let bad = Tensor::full([1, positions, 3], value, device);
    Tensor::cat(vec![x.clone().narrow(0, 0, 1), bad, x.narrow(0, 2, 2)], 0)
}

#[test]
fn an_example_that_is_not_finite_does_not_change_the_sum() {
    for device in training_devices() {
        for positions in [1, 3] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, f32::MAX] {
                let (private, plain) = model(&device);
                let good = numbers([4, positions, 3], 1, &device);
                let expected = clipped_by_loop(&plain, 4, 0.5, |plain, example| {
                    let x = good.clone().narrow(0, example, 1);
                    let weight = if example == 1 { 0.0 } else { 1.0 };
                    plain_losses(plain, x) * weight
                });
                for backward in backwards() {
                    let x = planted(positions, value, &device);
                    let grads = backward.run(losses(&private, x), &private).unwrap();
                    let sum = FlatClipping::new(0.5).unwrap().clip(grads).unwrap();
                    assert_eq!(sum.statistics().unwrap().reveal().non_finite, 1, "{value}");
                    assert_close(
                        &device,
                        &flat_sum(sum),
                        &expected,
                        &format!("{value} {backward:?}"),
                    );
                }
            }
        }
    }
}

#[test]
fn no_example_moves_the_sum_by_more_than_the_threshold() {
    for device in training_devices() {
        for clipping_norm in [1e-3, 1.0, 100.0] {
            for value in [0.0, 1e-30, 1e-20, 1e-6, 1.0, 1e3, 1e9, 1e15, 1e19, 1e25, f32::NAN] {
                for (positions, backward) in [1, 2, 30].into_iter().flat_map(|positions| {
                    backwards().into_iter().map(move |backward| (positions, backward))
                }) {
                    let (private, _) = model(&device);
                    let x = Tensor::full([1, positions, 3], value, &device);
                    let grads = backward.run(losses(&private, x), &private).unwrap();
                    let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                    let moved = norm(&flat_sum(sum));
                    assert!(
                        moved <= clipping_norm * (1.0 + 1.0 / f64::from(1 << 20)),
                        "{value} moved the sum by {moved}, threshold {clipping_norm}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_tiny_input_with_a_huge_gradient_is_not_underestimated() {
    for device in training_devices() {
        for positions in [1, 4] {
            let layer = LinearConfig::new(3, 2).with_bias(false).init(&device).private();
            // ‖input‖² is zero in f32, but the gradient of the output is huge.
            let x = Tensor::<3>::full([1, positions, 3], 1e-23, &device);
            for backward in backwards() {
                let huge = (layer.forward(x.clone()) * 4e18).sum_dims(&[1, 2]).reshape([-1]);
                let grads = backward.run(huge, &layer).unwrap();
                let sum = FlatClipping::new(1e-5).unwrap().clip(grads).unwrap();
                let moved = norm(&flat_sum(sum));
                assert!(moved <= 1e-5 * (1.0 + 1e-6), "{moved} {backward:?}");
            }
        }
    }
}

#[test]
fn the_norm_of_a_gradient_whose_squares_are_zero_is_not_underestimated() {
    for device in training_devices() {
        let layer = LinearConfig::new(3, 2).with_bias(false).init(&device).private();
        for positions in [1, 4] {
            let x = Tensor::<3>::full([1, positions, 3], 1e-24, &device);
            for backward in backwards() {
                let losses = layer.forward(x.clone()).sum_dims(&[1, 2]).reshape([-1]);
                let grads = backward.run(losses, &layer).unwrap();
                let found = blocking(grads.squared_norms(&ParameterGroups::whole()), "").unwrap();
                let exact = 6.0 * (positions as f64 * 1e-24).powi(2);
                assert!(found[0][0] >= exact, "{found:?} {exact} {backward:?}");
            }
        }
    }
}

#[test]
fn norms_of_canceling_positions_are_not_underestimated() {
    for device in training_devices() {
        // Wide enough for ghost norms, and narrow enough that gradients are instantiated.
        for [d_input, d_output] in [[3, 2], [32, 32]] {
            let config = LinearConfig::new(d_input, d_output).with_bias(false);
            let layer = config.init(&device).private();
            for seed in 0..40 {
                check_canceling_positions(&layer, seed, &device);
            }
        }
    }
}

// The roundings of equal terms have one sign, and the norm and the sum add them in another order.
#[test]
fn contributions_of_many_equal_values_do_not_exceed_the_threshold() {
    for device in training_devices() {
        let constant = |shape: [usize; 4], value: f32| Tensor::<4>::full(shape, value, &device);
        let convolution = Conv2dConfig::new([2, 3], [3, 3]).init(&device).private();
        for (side, value) in [(14, 0.3), (34, 0.7), (66, 1.1)] {
            let image = constant([1, 2, side, side], value);
            let loss = || convolution.forward(image.clone()).mean().reshape([1]);
            let shares = shares_of_threshold(&convolution, loss);
            // Two sums over the positions.
            assert_shares(&shares, 2 * (side - 2).pow(2), &device);
        }
        for d_input in [256, 700, 3_000] {
            let linear = LinearConfig::new(d_input, 2_048).init(&device).private();
            let x = constant([1, 1, 3, d_input], 0.3);
            let loss = || linear.forward(x.clone()).sum().reshape([1]) * 0.7;
            let shares = shares_of_threshold(&linear, loss);
            // Two Gram matrices; half as much for the norm as for its square.
            assert_shares(&shares, (d_input + 2_048) / 2, &device);
        }
    }
}

// The squares after the first are half a unit of it, so that a running sum rounds them away.
#[test]
fn contributions_of_values_that_are_rounded_away_do_not_exceed_the_threshold() {
    for device in training_devices() {
        let row = |features: usize| {
            let small = Tensor::<1>::full([features - 1], 2.0f32.powi(-12), &device);
            Tensor::cat(vec![Tensor::ones([1], &device), small], 0).reshape([1, 1, features])
        };
        for [d_input, d_output] in [[256, 256], [3_072, 256], [256, 3_072]] {
            let config = LinearConfig::new(d_input, d_output).with_bias(false);
            let layer = config.init(&device).private();
            let (x, grad) = (row(d_input).repeat_dim(1, 2), row(d_output));
            let loss = || (layer.forward(x.clone()) * grad.clone()).sum().reshape([1]);
            let shares = shares_of_threshold(&layer, loss);
            assert_shares(&shares, (d_input + d_output) / 2, &device);
        }
    }
}

/// Checks that the margins of norms shorten a contribution by no more than they need.
///
/// - roundings: in single precision, of a term of a sum that the norm is proportional to
fn assert_shares(shares: &[f64], roundings: usize, device: &Device) {
    // Products with coefficients, sums of a few products, and the contribution itself, which is
    // measured after its rounding.
    let roundings = 2 * roundings + 64;
    // Terms that do not cancel: for an instantiated gradient three products in TF32, and one that
    // the contribution can have lost.
    let coarse = if has_coarse_products(device) { 4.0 / f64::from(1 << 9) } else { 0.0 };
    let least = 1.0 - coarse - roundings as f64 * f64::from(f32::EPSILON);
    assert!(shares.iter().all(|&share| share >= least), "{shares:?} {least} on {device:?}");
}

/// Checks that the clipped gradient of one example is not longer than its threshold. Returns its
/// length divided by the threshold, for every way to compute it.
fn shares_of_threshold<M: Module>(layer: &M, loss: impl Fn() -> Tensor<1>) -> Vec<f64> {
    let whole = FlatClipping::new(1e9).unwrap();
    let whole = whole.clip(PrivateBackward::new().run(loss(), layer).unwrap()).unwrap();
    let threshold = 0.9 * norm(&flat_sum(whole));
    let share = |backward: PrivateBackward| {
        let grads = backward.run(loss(), layer).unwrap();
        let sum = FlatClipping::new(threshold).unwrap().clip(grads).unwrap();
        let moved = norm(&flat_sum(sum));
        assert!(moved <= threshold * (1.0 + 1e-6), "{moved} {threshold} {backward:?}");
        moved / threshold
    };
    backwards().into_iter().map(share).collect()
}

/// Checks that pairs of positions that cancel, up to a remainder near the rounding of the Gram
/// matrices, move the sum by no more than the threshold.
fn check_canceling_positions(layer: &Private<Linear>, seed: u64, device: &Device) {
    let [d_input, _] = layer.inner.weight.dims();
    let a = numbers([1, 8, d_input], seed, device) * 1e3;
    let x = Tensor::cat(vec![a.clone(), a], 1);
    let digits = match has_coarse_products(device) {
        true => 1.0 + seed as f32 / 20.0,
        false => 3.0 + seed as f32 / 10.0,
    };
    let rest = 1.0 - 10f32.powf(-digits);
    let signs: Vec<f32> = (0..16).map(|t| if t < 8 { 1.0 } else { -rest }).collect();
    let signs = Tensor::<1>::from_floats(signs.as_slice(), device).reshape([1, 16, 1]);
    let loss = || (layer.forward(x.clone()) * signs.clone()).sum_dims(&[1, 2]).reshape([-1]);
    shares_of_threshold(layer, loss);
    // Rounding makes some of the sums negative.
    let grads = PrivateBackward::new().run(loss(), layer).unwrap();
    let bounds = blocking(grads.squared_norm_bounds(&ParameterGroups::whole()), "").unwrap();
    assert!(bounds.computed[0][0] >= 0.0, "{:?}", bounds.computed);
}

#[test]
fn padding_rows_contribute_nothing_even_if_not_finite() {
    for device in training_devices() {
        let (private, _) = model(&device);
        let clip = |x: Tensor<3>, real: Option<Vec<bool>>| {
            let grads = PrivateBackward::new().run(losses(&private, x), &private).unwrap();
            let grads = match real {
                Some(real) => grads.with_padding(real).unwrap(),
                None => grads,
            };
            FlatClipping::new(0.5).unwrap().clip(grads).unwrap()
        };
        let x = numbers([4, 2, 3], 1, &device);
        let expected = flat_sum(clip(x.clone(), None));
        let padding = Tensor::from_data(
            TensorData::new(
                vec![f32::NAN, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
                [2, 2, 3],
            ),
            &device,
        );
        let padded = clip(
            Tensor::cat(vec![x, padding], 0),
            Some(vec![true, true, true, true, false, false]),
        );
        assert_eq!(padded.statistics().unwrap().reveal().examples, 4);
        assert_eq!(padded.statistics().unwrap().reveal().non_finite, 0);
        assert_close(&device, &flat_sum(padded), &expected, "padding");
    }
}

#[test]
fn an_empty_batch_is_an_empty_sum() {
    for device in training_devices() {
        let (private, _) = model(&device);
        let none = Tensor::<1>::from_data(TensorData::new(Vec::<f32>::new(), [0]), &device);
        let grads = PrivateBackward::new().run(none, &private).unwrap();
        let sum = FlatClipping::new(1.0).unwrap().clip(grads).unwrap();
        assert!(sum.sums.is_empty());
        assert_eq!(sum.statistics().unwrap().reveal().examples, 0);
    }
}
