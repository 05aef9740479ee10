//! Shared functions for the tests of the fused kernels.

use burn::backend::{Flex, tensor::FloatTensor};
use burn::tensor::TensorData;
use proptest::prelude::*;

use super::settings::GateFunction;
use super::value::Value;

/// Returns every gate function.
pub(super) fn any_gate_function() -> impl Strategy<Value = GateFunction> {
    use GateFunction::{Identity, Relu, Sigmoid, Tanh};
    proptest::sample::select(vec![Identity, Relu, Sigmoid, Tanh])
}

/// Returns arbitrary values.
pub(super) fn ramp(shape: [usize; 2], phase: f32) -> Value<Flex> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| 2.0 * (i as f32 * 0.37 + phase).sin()).collect();
    Value(FloatTensor::<Flex>::from_data(TensorData::new(values, shape)))
}

/// Returns the values as data.
pub(super) fn values(value: &Value<Flex>) -> TensorData {
    value.0.clone().into_data()
}
