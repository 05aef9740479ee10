use burn::nn::activation::Activation;
use burn::tensor::Tensor;

use super::private::Private;
use super::{prelu::prelu, swiglu::swiglu};
use crate::ops::GateFunction;

impl Private<Activation> {
    /// Applies the activation.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …]`
    /// - output: the shape that the wrapped activation returns
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        activation(&self.inner, input)
    }
}

/// Computes the forward pass of an activation alone or as a part of another layer. Activations with
/// parameters consist of private primitives.
pub(super) fn activation<const D: usize>(layer: &Activation, input: Tensor<D>) -> Tensor<D> {
    match layer {
        Activation::PRelu(layer) => prelu(layer, input),
        Activation::SwiGlu(layer) => swiglu(layer, input),
        layer => layer.forward(input),
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
