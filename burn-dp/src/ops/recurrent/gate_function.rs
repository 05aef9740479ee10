use burn::backend::Backend;

use super::value::Value;

/// An activation whose derivative can be computed from its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateFunction {
    /// The input.
    Identity,
    /// The positive part.
    Relu,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

impl GateFunction {
    /// Applies the function.
    pub(super) fn apply<B: Backend>(self, input: Value<B>) -> Value<B> {
        match self {
            Self::Identity => input,
            Self::Relu => Value(B::relu(input.0)),
            Self::Sigmoid => Value(B::sigmoid(input.0)),
            Self::Tanh => Value(B::float_tanh(input.0)),
        }
    }

    /// Returns the gradient of the input from the output and its gradient.
    pub(super) fn backward<B: Backend>(self, output: Value<B>, grad: Value<B>) -> Value<B> {
        match self {
            Self::Identity => grad,
            Self::Relu => Value(B::relu_backward(output.0, grad.0)),
            Self::Sigmoid => Value(B::sigmoid_backward(output.0, grad.0)),
            Self::Tanh => grad.clone() - grad * (output.clone() * output),
        }
    }
}
