//! The inputs of the linear layers of the gates, and the gradients of their products.

use std::ops::Range;

use burn::backend::Backend;
use burn::tensor::Shape;

use super::value::Value;
use crate::ops::recording::{self, RawRecord};
use crate::ops::{LayerIds, Primitive, Slot};

/// One of the two linear layers of a gate, by its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerOf {
    Input,
    Hidden,
}

/// The layers of some gates that have one input, at all positions.
pub(super) struct Use<B: Backend> {
    pub(super) layer: LayerOf,
    pub(super) gates: Range<usize>,
    /// `[positions, batch_size, d]`.
    pub(super) input: Value<B>,
}

/// Gradients of the products of all gates.
pub(super) struct Products<B: Backend> {
    /// `[positions, batch_size, gates · d_hidden]`.
    all: Value<B>,
}

impl<B: Backend> Products<B> {
    pub(super) fn new(all: Value<B>) -> Self {
        Self { all }
    }

    pub(super) fn all(&self) -> Value<B> {
        self.all.clone()
    }

    /// Returns the gradients of gate `index`, `[positions, batch_size, d_hidden]`.
    fn gate(&self, index: usize, size: usize) -> Value<B> {
        self.all.clone().narrow(2, index * size, size)
    }

    /// Returns the gradients of each gate, `[batch_size, positions, d_hidden]`.
    pub(super) fn by_example(self, size: usize) -> Vec<Value<B>> {
        let [_, _, features] = self.all.dims();
        (0..features / size).map(|index| by_example(self.gate(index, size))).collect()
    }
}

impl<B: Backend> Use<B> {
    /// Returns the gradient of the weight of gate `index`, summed over positions and examples.
    pub(super) fn weight_grad(
        &self,
        products: &Products<B>,
        index: usize,
        size: usize,
    ) -> Value<B> {
        rows(self.input.clone()).swap_dims(0, 1).matmul(rows(products.gate(index, size)))
    }

    /// Returns the gradient of the bias of gate `index`, summed over positions and examples.
    pub(super) fn bias_grad(products: &Products<B>, index: usize, size: usize) -> Value<B> {
        let rows = rows(products.gate(index, size));
        Value::<B>(B::float_sum_dim(rows.0, 0)).reshape([size])
    }

    /// Returns the input of the layers, `[batch_size, positions, d]`.
    pub(super) fn input_by_example(&self) -> Value<B> {
        by_example(self.input.clone())
    }
}

/// Hands over one record for all positions; `input` is `None` if the weight of the layer is not
/// trained.
///
/// # Shapes
///
/// - input: `[batch_size, positions, d]`
/// - output_grad: `[batch_size, positions, d_hidden]`
pub(super) fn record<B: Backend>(
    layer: LayerIds,
    input: Option<Value<B>>,
    bias: bool,
    output_grad: Value<B>,
) {
    let last = |value: &Value<B>| value.dims::<3>()[2];
    recording::push(RawRecord {
        layer,
        primitive: Primitive::Linear,
        weight: input.as_ref().map(|input| Shape::new([last(input), last(&output_grad)])),
        bias,
        kept: input.into_iter().map(|input| Slot::new(input.0)).collect(),
        ids: None,
        output_grad: Slot::new(output_grad.0),
    });
}

/// Merges positions and examples into rows.
fn rows<B: Backend>(value: Value<B>) -> Value<B> {
    let [positions, batch_size, features] = value.dims();
    value.reshape([positions * batch_size, features])
}

/// Moves the batch to axis 0 and the positions to axis 1, also in memory: the rules read it several
/// times.
fn by_example<B: Backend>(value: Value<B>) -> Value<B> {
    let [positions, batch_size, features] = value.dims();
    value
        .swap_dims(0, 1)
        .reshape([batch_size, positions * features])
        .reshape([batch_size, positions, features])
}
