//! Checks that a second forward pass computes the same losses as the first one.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};

use crate::DpError;
use crate::device_read::{blocking, read_f64};
use crate::model::for_each_parameter;

/// Maximum accepted difference in standard deviations of the rounding of two passes. Under the
/// normal distribution, less than one in ten thousand differences is larger.
const DEVIATIONS: f64 = 4.0;

/// Returns the maximum accepted difference, relative to the largest loss, of two forward passes of
/// one model on one batch.
///
/// The CPU backends add in the same order each time, so every bit must agree. CubeCL measures
/// kernels at run time and may use a different one in the next call, which adds the same products
/// in another order. `n` roundings of relative size ε, of either sign, amount to `√n · ε`. The
/// count is one addition for every value of the model, in single precision even if the values are
/// in half precision, and one result in the precision of the model for every parameter.
///
/// # References
///
/// Higham and Mary, A new approach to probabilistic rounding error analysis, 2019, theorem 2.4.
pub(super) fn rounding<M: Module>(model: &M, device: &Device) -> f64 {
    if adds_in_one_order(device) {
        return 0.0;
    }
    let Operands { values, tensors, epsilon } = Operands::of(model);
    let accumulated = epsilon.min(FloatDType::F32.finfo().epsilon) * (values as f64).sqrt();
    DEVIATIONS * (accumulated + epsilon * (tensors as f64).sqrt())
}

/// Returns whether the device computes the same bits each time.
fn adds_in_one_order(device: &Device) -> bool {
    let devices: &[Device] = &[
        #[cfg(feature = "flex")]
        Device::flex(),
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
    ];
    devices.contains(device)
}

/// The parameters that enter a forward pass.
#[derive(Default)]
struct Operands {
    values: usize,
    tensors: usize,
    /// Relative rounding error of the lowest precision.
    epsilon: f64,
}

impl Operands {
    fn of<M: Module>(model: &M) -> Self {
        let mut found = Self::default();
        for_each_parameter(model, |_, parameter| {
            let precision = parameter.value.dtype().finfo().unwrap_or(FloatDType::F32.finfo());
            found.values += parameter.value.shape().num_elements();
            found.tensors += 1;
            found.epsilon = found.epsilon.max(precision.epsilon);
        });
        found
    }
}

/// Checks that the losses of two passes differ by at most `rounding`, relative to the largest loss.
///
/// # Shapes
///
/// - first, second: `[batch_size]`, on a device without autodiff
///
/// # Errors
///
/// Returns [`DpError::NotPerExample`] if they differ by more or are not finite, and
/// [`DpError::Device`] if they cannot be read.
pub(super) fn check_repeated(
    first: Tensor<1>,
    second: Tensor<1>,
    rounding: f64,
) -> Result<(), DpError> {
    let (first, second) = (host(first)?, host(second)?);
    let largest = first.iter().fold(0.0, |largest: f64, loss| largest.max(loss.abs()));
    let differences = || first.iter().zip(&second).map(|(first, second)| (second - first).abs());
    // NaN fails this comparison.
    if first.len() == second.len() && differences().all(|one| one <= rounding * largest) {
        return Ok(());
    }
    let difference = differences().fold(0.0, f64::max);
    Err(DpError::NotPerExample {
        reason: format!(
            "two calls returned losses that differ by {difference:e}, which is more than rounding; \
             remove what draws random numbers, or use `PrivateBackward`, which needs one pass"
        ),
    })
}

fn host(losses: Tensor<1>) -> Result<Vec<f64>, DpError> {
    blocking(read_f64(losses, "losses"), "DpOptimizer::backward_async")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};

    use super::*;
    use crate::nn::{IntoPrivate, Private};
    use crate::test_devices::cpu_devices;

    fn layer(device: &Device) -> Private<Linear> {
        LinearConfig::new(16, 8).init(&device.clone().autodiff()).private()
    }

    fn check(first: [f32; 2], second: [f32; 2], rounding: f64) -> Result<(), DpError> {
        let tensor = |losses: [f32; 2]| Tensor::from_data(losses, &Device::default());
        check_repeated(tensor(first), tensor(second), rounding)
    }

    #[test]
    fn cpu_must_repeat_every_bit() {
        for device in cpu_devices() {
            let rounding = rounding(&layer(&device), &device.autodiff());
            check([0.5, 2.0], [0.5, 2.0], rounding).unwrap();
            check([0.5, 2.0], [0.5, 2.0f32.next_up()], rounding).unwrap_err();
        }
    }

    #[test]
    fn differences_up_to_rounding_are_accepted() {
        let operands = Operands::of(&layer(&Device::default()));
        assert_eq!((operands.values, operands.tensors), (16 * 8 + 8, 2));
        assert_eq!(operands.epsilon, f64::from(f32::EPSILON));

        // The bound of `rounding` for 136 values in two tensors.
        let rounding = DEVIATIONS * f64::from(f32::EPSILON) * (136f64.sqrt() + 2f64.sqrt());
        check([0.5, 2.0], [0.5, 2.0 * (1.0 + 40.0 * f32::EPSILON)], rounding).unwrap();
        check([0.5, 2.0], [0.5, 2.0 * (1.0 + 80.0 * f32::EPSILON)], rounding).unwrap_err();
    }

    #[test]
    fn losses_that_are_not_finite_are_refused() {
        check([0.5, f32::NAN], [0.5, f32::NAN], 1e-5).unwrap_err();
        check([0.5, 2.0], [0.5, f32::NAN], 1e-5).unwrap_err();
        check([0.5, f32::INFINITY], [0.5, f32::INFINITY], 1e-5).unwrap_err();
    }
}
