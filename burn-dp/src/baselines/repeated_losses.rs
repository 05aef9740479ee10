//! Whether a second forward pass computed what the first one did.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, FloatDType, Tensor};

use crate::DpError;

/// Standard deviations of the roundings of two passes that count as rounding: beyond this lies less than
/// one in ten thousand under the normal distribution.
const DEVIATIONS: f64 = 4.0;

/// How far, relative to the largest loss, two forward passes of one model on one batch can be apart.
///
/// The CPU backends add in the same order each time, so nothing may differ. CubeCL measures kernels
/// while they are used and may take another one from one call to the next, which adds the same products
/// in another order. `n` roundings of relative size ε, of either sign, amount to `√n · ε`. What is counted here
/// is one addition for every value of the model, in single precision also where the values are of half
/// precision, and one result in the precision of the model for every parameter.
///
/// # References
///
/// Higham and Mary, A new approach to probabilistic rounding error analysis, 2019, theorem 2.4.
pub(crate) fn rounding<M: Module>(model: &M, device: &Device) -> f64 {
    if adds_in_one_order(device) {
        return 0.0;
    }
    let mut operands = Operands::default();
    model.visit(&mut operands);
    let Operands { values, tensors, epsilon } = operands;
    let accumulated = epsilon.min(FloatDType::F32.finfo().epsilon) * (values as f64).sqrt();
    DEVIATIONS * (accumulated + epsilon * (tensors as f64).sqrt())
}

/// Whether the device computes the same bits each time.
fn adds_in_one_order(device: &Device) -> bool {
    let devices: &[Device] = &[
        #[cfg(feature = "flex")]
        Device::flex(),
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
    ];
    devices.contains(device)
}

/// What goes into a forward pass.
#[derive(Default)]
struct Operands {
    values: usize,
    tensors: usize,
    /// Of the coarsest precision.
    epsilon: f64,
}

impl ModuleVisitor for Operands {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        let precision = tensor.dtype().finfo().unwrap_or(FloatDType::F32.finfo());
        self.values += tensor.shape().num_elements();
        self.tensors += 1;
        self.epsilon = self.epsilon.max(precision.epsilon);
    }
}

/// Refuses losses of a second pass that are further from the first ones than `rounding`, relative to the
/// largest loss.
///
/// # Shapes
///
/// - first, second: `[batch_size]`, on a device without autodiff
pub(crate) fn check_repeated(
    first: Tensor<1>,
    second: Tensor<1>,
    rounding: f64,
) -> Result<(), DpError> {
    let (first, second) = (host(first)?, host(second)?);
    let largest = first.iter().fold(0.0, |largest: f64, loss| largest.max(loss.abs()));
    let differences = || first.iter().zip(&second).map(|(first, second)| (second - first).abs());
    // Written so that NaN is refused.
    if first.len() == second.len() && differences().all(|one| one <= rounding * largest) {
        return Ok(());
    }
    let difference = differences().fold(0.0, f64::max);
    Err(DpError::NotPerExample {
        reason: format!(
            "two calls gave losses that are {difference:e} apart, which is more than rounding; \
             take out what draws random numbers, or use `PrivateBackward`, which needs one pass"
        ),
    })
}

fn host(losses: Tensor<1>) -> Result<Vec<f64>, DpError> {
    losses.into_data().convert_dtype(DType::F64).try_into_vec().map_err(|error| {
        DpError::state(format!("losses cannot be read from the device: {error:?}"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};

    use super::*;
    use crate::clipping::FlatClipping;
    use crate::nn::{IntoPrivate, Private};
    use crate::test_devices::{cpu_devices, devices};

    #[derive(Module, Debug)]
    struct WithDropout {
        layer: Private<Linear>,
        dropout: Dropout,
    }

    fn with_dropout(prob: f64, device: &Device) -> (WithDropout, Tensor<2>) {
        let device = device.clone().autodiff();
        let layer = LinearConfig::new(16, 8).init(&device).private();
        let x = Tensor::from_data([[0.5f32; 16], [0.25; 16]], &device);
        (WithDropout { layer, dropout: DropoutConfig::new(prob).init() }, x)
    }

    fn reweight(prob: f64, device: &Device) -> Result<(), DpError> {
        let (model, x) = with_dropout(prob, device);
        let losses = |model: &WithDropout| -> Tensor<1> {
            let output = model.dropout.forward(model.layer.forward(x.clone()));
            output.powi_scalar(2).sum_dim(1).reshape([-1])
        };
        FlatClipping::new(1.0).unwrap().reweight(&model, losses).map(|_| ())
    }

    #[test]
    fn losses_that_are_drawn_anew_in_the_second_pass_are_refused() {
        for device in devices() {
            reweight(0.0, &device).unwrap();
            let refused = reweight(0.5, &device).unwrap_err();
            assert!(matches!(refused, DpError::NotPerExample { .. }), "{refused}");
        }
    }

    fn check(first: [f32; 2], second: [f32; 2], rounding: f64) -> Result<(), DpError> {
        let tensor = |losses: [f32; 2]| Tensor::from_data(losses, &Device::default());
        check_repeated(tensor(first), tensor(second), rounding)
    }

    #[test]
    fn a_cpu_must_repeat_every_bit() {
        for device in cpu_devices() {
            let (model, _) = with_dropout(0.5, &device);
            let rounding = rounding(&model, &device.autodiff());
            check([0.5, 2.0], [0.5, 2.0], rounding).unwrap();
            check([0.5, 2.0], [0.5, 2.0f32.next_up()], rounding).unwrap_err();
        }
    }

    #[test]
    fn rounding_is_forgiven_where_the_order_changes_and_more_than_rounding_is_not() {
        let (model, _) = with_dropout(0.5, &Device::default());
        let mut operands = Operands::default();
        model.visit(&mut operands);
        assert_eq!((operands.values, operands.tensors), (16 * 8 + 8, 2));
        assert_eq!(operands.epsilon, f64::from(f32::EPSILON));

        // As `rounding` says of 136 values in two tensors.
        let rounding = DEVIATIONS * f64::from(f32::EPSILON) * (136f64.sqrt() + 2f64.sqrt());
        check([0.5, 2.0], [0.5, 2.0 * (1.0 + 40.0 * f32::EPSILON)], rounding).unwrap();
        check([0.5, 2.0], [0.5, 2.0 * (1.0 + 80.0 * f32::EPSILON)], rounding).unwrap_err();
    }

    #[test]
    fn losses_that_are_no_numbers_are_refused() {
        check([0.5, f32::NAN], [0.5, f32::NAN], 1e-5).unwrap_err();
        check([0.5, 2.0], [0.5, f32::NAN], 1e-5).unwrap_err();
        check([0.5, f32::INFINITY], [0.5, f32::INFINITY], 1e-5).unwrap_err();
    }
}
