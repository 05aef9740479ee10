//! Comparisons of trained parameters. On a device that multiplies in TF32, rounding depends on the
//! number of rows and on the operations that Burn fuses into one kernel.

use burn::tensor::Device;
use burn_dp::grads::has_coarse_products;

/// Compares each value, on every device.
pub(crate) fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance, "{found} {expected}");
    }
}

/// Compares the parameters of two models that were trained on the same units by plain SGD. On a
/// device that multiplies in TF32 their distance must be less than half of what a clipped unit
/// moves them in a step, so that a unit that is lost or counted twice is found.
///
/// - `unit`: the learning rate times the clipping threshold, divided by the batch size
pub(crate) fn assert_same_units(
    device: &Device,
    found: &[f32],
    expected: &[f32],
    tolerance: f32,
    unit: f64,
) {
    match has_coarse_products(device) {
        false => assert_close(found, expected, tolerance),
        true => assert_no_unit_is_lost(found, expected, unit),
    }
}

/// Checks that the distance of parameters is less than half of what a clipped unit moves them.
pub(crate) fn assert_no_unit_is_lost(found: &[f32], expected: &[f32], unit: f64) {
    assert_eq!(found.len(), expected.len());
    let [found, expected] =
        [found, expected].map(|values| values.iter().copied().map(f64::from).collect::<Vec<_>>());
    let distance = distance(&found, &expected);
    assert!(distance < 0.5 * unit, "{distance}, and a unit moves the parameters by {unit}");
}

pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}
