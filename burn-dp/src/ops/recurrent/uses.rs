//! What the linear layers of the gates saw, and the gradients of their products.

use std::ops::Range;

use burn::backend::Backend;
use burn::tensor::Shape;

use super::value::Value;
use crate::ops::recording::{self, RawRecord};
use crate::ops::{LayerIds, Primitive, Slot};

/// Which of the two linear layers of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sees {
    Input,
    Hidden,
}

/// Layers of some gates that saw the same, at all positions.
pub(super) struct Use<B: Backend> {
    pub(super) sees: Sees,
    pub(super) gates: Range<usize>,
    /// `[positions, batch_size, d]`.
    pub(super) seen: Value<B>,
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

    /// Of gate `index`, `[positions, batch_size, d_hidden]`.
    fn gate(&self, index: usize, size: usize) -> Value<B> {
        self.all.clone().narrow(2, index * size, size)
    }

    /// Those of each gate, `[batch_size, positions, d_hidden]`.
    pub(super) fn by_example(self, size: usize) -> Vec<Value<B>> {
        let [_, _, features] = self.all.dims();
        (0..features / size).map(|index| by_example(self.gate(index, size))).collect()
    }
}

impl<B: Backend> Use<B> {
    /// The gradient of the weight of gate `index`, summed over positions and examples.
    pub(super) fn weight_grad(
        &self,
        products: &Products<B>,
        index: usize,
        size: usize,
    ) -> Value<B> {
        rows(self.seen.clone()).swap_dims(0, 1).matmul(rows(products.gate(index, size)))
    }

    /// The same for its bias.
    pub(super) fn bias_grad(products: &Products<B>, index: usize, size: usize) -> Value<B> {
        let rows = rows(products.gate(index, size));
        Value::<B>(B::float_sum_dim(rows.0, 0)).reshape([size])
    }

    /// What the layers saw, `[batch_size, positions, d]`.
    pub(super) fn seen_by_example(&self) -> Value<B> {
        by_example(self.seen.clone())
    }
}

/// One contribution for all positions; `seen` is what the layer saw, if its weight is trained.
///
/// # Shapes
///
/// - seen: `[batch_size, positions, d]`
/// - output_grad: `[batch_size, positions, d_hidden]`
pub(super) fn record<B: Backend>(
    layer: LayerIds,
    seen: Option<Value<B>>,
    bias: bool,
    output_grad: Value<B>,
) {
    let last = |value: &Value<B>| value.dims::<3>()[2];
    recording::push(RawRecord {
        layer,
        primitive: Primitive::Linear,
        weight: seen.as_ref().map(|seen| Shape::new([last(seen), last(&output_grad)])),
        bias,
        kept: seen.into_iter().map(|seen| Slot::new(seen.0)).collect(),
        ids: None,
        output_grad: Slot::new(output_grad.0),
    });
}

/// Positions and examples as rows.
fn rows<B: Backend>(value: Value<B>) -> Value<B> {
    let [positions, batch_size, features] = value.dims();
    value.reshape([positions * batch_size, features])
}

/// The batch on axis 0 and the positions on axis 1, in memory too: the rules read it several times.
fn by_example<B: Backend>(value: Value<B>) -> Value<B> {
    let [positions, batch_size, features] = value.dims();
    value
        .swap_dims(0, 1)
        .reshape([batch_size, positions * features])
        .reshape([batch_size, positions, features])
}
