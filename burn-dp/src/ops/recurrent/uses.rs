//! What the linear layers of the gates saw, and the gradients of their products.

use std::cell::OnceCell;
use std::ops::Range;

use burn::backend::Backend;
use burn::tensor::Shape;

use super::gate_parameters::GATES;
use super::value::Value;
use crate::grads::recording::{self, RawRecord};
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
    /// Those of one gate, by example; layers that see the input and the hidden state share them.
    by_example: [OnceCell<Value<B>>; GATES],
}

impl<B: Backend> Products<B> {
    pub(super) fn new(all: Value<B>) -> Self {
        Self { all, by_example: std::array::from_fn(|_| OnceCell::new()) }
    }

    pub(super) fn all(&self) -> Value<B> {
        self.all.clone()
    }

    /// Of gate `index`, `[positions, batch_size, d_hidden]`.
    fn gate(&self, index: usize, size: usize) -> Value<B> {
        self.all.clone().narrow(2, index * size, size)
    }

    fn gate_by_example(&self, index: usize, size: usize) -> Value<B> {
        let one = || by_example(self.gate(index, size));
        self.by_example[index].get_or_init(one).clone()
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
pub(super) fn record<B: Backend>(
    layer: LayerIds,
    seen: Option<Value<B>>,
    bias: bool,
    products: &Products<B>,
    index: usize,
    size: usize,
) {
    let d_input = |seen: &Value<B>| seen.dims::<3>()[2];
    recording::push(RawRecord {
        layer,
        primitive: Primitive::Linear,
        weight: seen.as_ref().map(|seen| Shape::new([d_input(seen), size])),
        bias,
        kept: seen.into_iter().map(|seen| Slot::new(seen.0)).collect(),
        ids: None,
        output_grad: Slot::new(products.gate_by_example(index, size).0),
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
