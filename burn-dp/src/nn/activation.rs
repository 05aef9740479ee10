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
    /// - output: as the activation that is wrapped
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        activation(&self.inner, input)
    }
}

/// The forward pass of an activation that may be a part of another layer: those with parameters are
/// composed of private primitives.
pub(super) fn activation<const D: usize>(layer: &Activation, input: Tensor<D>) -> Tensor<D> {
    match layer {
        Activation::PRelu(layer) => prelu(layer, input),
        Activation::SwiGlu(layer) => swiglu(layer, input),
        layer => layer.forward(input),
    }
}

/// The activation as a gate of the recurrent primitive, if it is one.
pub(super) fn gate_function(layer: &Activation) -> Option<GateFunction> {
    match layer {
        Activation::Identity(_) => Some(GateFunction::Identity),
        Activation::Relu(_) => Some(GateFunction::Relu),
        Activation::Sigmoid(_) => Some(GateFunction::Sigmoid),
        Activation::Tanh(_) => Some(GateFunction::Tanh),
        _ => None,
    }
}
