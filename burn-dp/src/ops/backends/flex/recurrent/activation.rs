use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::TensorData;
use burn_dp_kernels::exponential;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::TASK_VALUES;
use crate::ops::GateFunction;

/// Applies a gate function to every value.
pub(in crate::ops::backends::flex) fn gate(
    input: &FloatTensor<Flex>,
    function: GateFunction,
) -> Option<FloatTensor<Flex>> {
    let mut values = input.as_slice::<f32>()?.to_vec();
    let task = |values: &mut [f32]| Arch::new().dispatch(Gate { function, values });
    values.par_chunks_mut(TASK_VALUES).for_each(task);
    Some(FloatTensor::<Flex>::from_data(TensorData::new(values, input.shape())))
}

/// Returns the gradient of the input of a gate function from its output and the gradient of its
/// output.
pub(in crate::ops::backends::flex) fn gate_backward(
    output: &FloatTensor<Flex>,
    grad: &FloatTensor<Flex>,
    function: GateFunction,
) -> Option<FloatTensor<Flex>> {
    let output = output.as_slice::<f32>()?;
    let mut values = grad.as_slice::<f32>()?.to_vec();
    (output.par_chunks(TASK_VALUES), values.par_chunks_mut(TASK_VALUES))
        .into_par_iter()
        .for_each(|(output, grad)| Arch::new().dispatch(GateBackward { function, output, grad }));
    Some(FloatTensor::<Flex>::from_data(TensorData::new(values, grad.shape())))
}

/// [`apply`], compiled for each vector unit.
struct Gate<'a> {
    function: GateFunction,
    values: &'a mut [f32],
}

impl WithSimd for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        apply(self.function, self.values);
    }
}

/// [`apply_backward`], compiled for each vector unit.
struct GateBackward<'a> {
    function: GateFunction,
    output: &'a [f32],
    grad: &'a mut [f32],
}

impl WithSimd for GateBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        apply_backward(self.function, self.output, self.grad);
    }
}

/// Replaces values with the results of the gate function. NaN stays NaN.
#[inline(always)]
pub(super) fn apply(function: GateFunction, values: &mut [f32]) {
    match function {
        GateFunction::Identity => {}
        GateFunction::Relu => each(values, |value| if value < 0.0 { 0.0 } else { value }),
        GateFunction::Sigmoid => each(values, sigmoid),
        GateFunction::Tanh => each(values, tanh),
    }
}

/// Replaces gradients of outputs with gradients of inputs.
#[inline(always)]
pub(super) fn apply_backward(function: GateFunction, outputs: &[f32], grads: &mut [f32]) {
    match function {
        GateFunction::Identity => {}
        GateFunction::Relu => {
            pairs(outputs, grads, |output, grad| if output <= 0.0 { 0.0 } else { grad });
        }
        GateFunction::Sigmoid => {
            pairs(outputs, grads, |output, grad| grad * output * (1.0 - output));
        }
        GateFunction::Tanh => pairs(outputs, grads, |output, grad| grad - grad * (output * output)),
    }
}

#[inline(always)]
fn pairs(outputs: &[f32], grads: &mut [f32], derivative: impl Fn(f32, f32) -> f32) {
    for (grad, &output) in grads.iter_mut().zip(outputs) {
        *grad = derivative(output, *grad);
    }
}

#[inline(always)]
fn each(values: &mut [f32], function: impl Fn(f32) -> f32) {
    values.iter_mut().for_each(|value| *value = function(*value));
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let (power, minus_one) = exponential(-x);
    1.0 / (1.0 + (power + power * minus_one))
}

/// Returns `(e^{2|x|} − 1) / (e^{2|x|} + 1)` with the sign of `x`.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let (power, minus_one) = exponential(2.0 * x.abs());
    let minus_one = power * minus_one + (power - 1.0);
    (minus_one / (minus_one + 2.0)).copysign(x)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::ops::{ActivationOps, FloatTensorOps};
    use burn::tensor::{Device, Tensor};

    use super::*;

    const ALL: [GateFunction; 4] =
        [GateFunction::Identity, GateFunction::Relu, GateFunction::Sigmoid, GateFunction::Tanh];

    /// Values of every magnitude and both signs.
    fn arguments() -> Vec<f32> {
        let mut values = vec![0.0f32, -0.0];
        for exponent in -40..8 {
            for fraction in 0..37 {
                let value = (1.0 + fraction as f32 / 37.0) * 2f32.powi(exponent);
                values.extend([value, -value]);
            }
        }
        values
    }

    fn applied(function: GateFunction, values: &[f32]) -> Vec<f32> {
        let mut values = values.to_vec();
        Arch::new().dispatch(Gate { function, values: &mut values });
        values
    }

    #[test]
    fn gate_functions_are_within_a_few_units_in_the_last_place() {
        let arguments = arguments();
        for function in [GateFunction::Sigmoid, GateFunction::Tanh] {
            for (&x, value) in arguments.iter().zip(applied(function, &arguments)) {
                let exact = match function {
                    GateFunction::Tanh => f64::from(x).tanh(),
                    _ => 1.0 / (1.0 + (-f64::from(x)).exp()),
                };
                let error = (f64::from(value) - exact).abs();
                // Below e⁻⁸⁷ the logistic function is a constant of that size.
                assert!(
                    error <= 3.0 * f64::from(f32::EPSILON) * exact.abs() + 2e-38,
                    "{function:?} of {x}: {value}, exactly {exact}"
                );
            }
        }
    }

    #[test]
    fn values_that_are_not_finite_give_limits_and_nan_stays() {
        let values = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for function in ALL {
            let result = applied(function, &values);
            let limits = match function {
                GateFunction::Identity => [f32::INFINITY, f32::NEG_INFINITY],
                GateFunction::Relu => [f32::INFINITY, 0.0],
                GateFunction::Sigmoid => [1.0, 0.0],
                GateFunction::Tanh => [1.0, -1.0],
            };
            for (value, limit) in result.iter().zip(limits) {
                assert!(*value == limit || (value - limit).abs() < 1e-37, "{function:?} {value}");
            }
            assert!(result[2].is_nan(), "{function:?}");
        }
    }

    #[test]
    fn native_gates_and_gradients_equal_the_operations_of_burn() {
        let values = arguments();
        let count = values.len();
        let tensor = |values: Vec<f32>| {
            Tensor::<2>::from_data(TensorData::new(values, [count / 2, 2]), &Device::flex())
        };
        let flex = |tensor: &Tensor<2>| FloatTensor::<Flex>::from_data(tensor.to_data());
        let input = flex(&tensor(values.clone()));
        let grad = flex(&tensor(values.iter().rev().map(|value| value.sin()).collect()));
        for function in ALL {
            let (output, input_grad) = match function {
                GateFunction::Identity => (input.clone(), grad.clone()),
                GateFunction::Relu => {
                    let output = Flex::relu(input.clone());
                    (output.clone(), Flex::relu_backward(output, grad.clone()))
                }
                GateFunction::Sigmoid => {
                    let output = Flex::sigmoid(input.clone());
                    (output.clone(), Flex::sigmoid_backward(output, grad.clone()))
                }
                GateFunction::Tanh => {
                    let output = Flex::float_tanh(input.clone());
                    let slope = Flex::float_mul(output.clone(), output.clone());
                    let less = Flex::float_mul(grad.clone(), slope);
                    (output, Flex::float_sub(grad.clone(), less))
                }
            };
            let tolerance = burn::tensor::Tolerance::<f32>::absolute(1e-6).set_relative(1e-6);
            let native = gate(&input, function).unwrap();
            native.into_data().assert_approx_eq::<f32>(&output.clone().into_data(), tolerance);
            let native = gate_backward(&output, &grad, function).unwrap();
            native.into_data().assert_approx_eq::<f32>(&input_grad.into_data(), tolerance);
        }
    }
}
