use super::fused_ops::FusedOps;
use super::settings::GateFunction;
use super::value::Value;

impl GateFunction {
    /// Applies the function.
    pub(in crate::ops) fn apply<B: FusedOps>(self, input: Value<B>) -> Value<B> {
        match B::gate(&input.0, self) {
            Some(output) => Value(output),
            None => self.apply_by_operations(input),
        }
    }

    /// Applies the function with Burn's operations.
    pub(super) fn apply_by_operations<B: FusedOps>(self, input: Value<B>) -> Value<B> {
        match self {
            Self::Identity => input,
            Self::Relu => Value(B::relu(input.0)),
            Self::Sigmoid => Value(B::sigmoid(input.0)),
            Self::Tanh => Value(B::float_tanh(input.0)),
        }
    }

    /// Returns the gradient of the input from the output and its gradient.
    pub(in crate::ops) fn backward<B: FusedOps>(
        self,
        output: Value<B>,
        grad: Value<B>,
    ) -> Value<B> {
        match B::gate_backward(&output.0, &grad.0, self) {
            Some(grad) => Value(grad),
            None => self.backward_by_operations(output, grad),
        }
    }

    /// Computes the gradient of the input with Burn's operations.
    pub(super) fn backward_by_operations<B: FusedOps>(
        self,
        output: Value<B>,
        grad: Value<B>,
    ) -> Value<B> {
        match self {
            Self::Identity => grad,
            Self::Relu => Value(B::relu_backward(output.0, grad.0)),
            Self::Sigmoid => Value(B::sigmoid_backward(output.0, grad.0)),
            Self::Tanh => grad.clone() - grad * (output.clone() * output),
        }
    }
}
