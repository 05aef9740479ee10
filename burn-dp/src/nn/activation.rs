use burn::nn::activation::Activation;
use burn::tensor::Tensor;

use super::backend::has_native_kernels;
use super::private::Private;
use super::{prelu::prelu, swiglu::swiglu};
use crate::ops::{self, GateFunction};

impl Private<Activation> {
    /// Applies the activation. Sigmoid and tanh have native kernels on Flex.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …]`
    /// - output: the shape that the wrapped activation returns
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        activation(&self.inner, input)
    }
}

/// Computes the forward pass of an activation on its own or as part of another layer. Activations
/// with parameters consist of private primitives.
pub(super) fn activation<const D: usize>(layer: &Activation, input: Tensor<D>) -> Tensor<D> {
    match layer {
        Activation::PRelu(layer) => prelu(layer, input),
        Activation::SwiGlu(layer) => swiglu(layer, input),
        layer => match gate_function(layer) {
            Some(function @ (GateFunction::Sigmoid | GateFunction::Tanh))
                if has_native_kernels(&input.device()) =>
            {
                ops::activation(input, function)
            }
            _ => layer.forward(input),
        },
    }
}

/// Returns the function of the recurrent primitive that equals the activation, if there is one.
pub(super) fn gate_function(layer: &Activation) -> Option<GateFunction> {
    match layer {
        Activation::Identity(_) => Some(GateFunction::Identity),
        Activation::Relu(_) => Some(GateFunction::Relu),
        Activation::Sigmoid(_) => Some(GateFunction::Sigmoid),
        Activation::Tanh(_) => Some(GateFunction::Tanh),
        _ => None,
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::nn::activation::ActivationConfig;
    use burn::tensor::{Device, Int, Tolerance};

    use super::*;

    #[test]
    fn native_activations_and_gradients_equal_those_of_burn() {
        let device = Device::flex().autodiff();
        for config in [ActivationConfig::Sigmoid, ActivationConfig::Tanh] {
            let layer = config.init(&device);
            let numbers = Tensor::<1, Int>::arange(0..3 * 70 * 130, &device).float();
            let input =
                numbers.clone().mul_scalar(0.37).sin().mul_scalar(9.0).reshape([3, 70, 130]);
            let weights = numbers.mul_scalar(0.73).cos().reshape([3, 130, 70]);
            // Also for a view.
            let [native, expected] = [true, false].map(|native| {
                let input = input.clone().require_grad();
                let view = input.clone().swap_dims(1, 2);
                let output = if native { activation(&layer, view) } else { layer.forward(view) };
                let grads = (output.clone() * weights.clone()).sum().backward();
                [output.inner(), input.grad(&grads).expect("the input is tracked")]
            });
            for (native, expected) in native.into_iter().zip(expected) {
                let tolerance = Tolerance::<f32>::absolute(1e-6).set_relative(1e-5);
                native.into_data().assert_approx_eq::<f32>(&expected.into_data(), tolerance);
            }
        }
    }
}
