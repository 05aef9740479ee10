//! The inputs of the linear layers of the gates, and the gradients of their products.

use std::cell::OnceCell;
use std::ops::Range;

use burn::backend::Backend;
use burn::tensor::Shape;

use super::FusedOps;
use super::value::Value;
use crate::ops::primitives::axes::sum_axis;
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
    pub(super) input: LayerInput<B>,
}

/// The input of a linear layer.
pub(super) enum LayerInput<B: Backend> {
    /// The input of the whole batch, `[batch_size, positions, d]`.
    Batch(Value<B>),
    Sequence(Sequence<B>),
    /// It is not kept, because no weight is trained.
    Dropped,
}

/// Matrices `[examples, features]` of each position and, within it, of each part of the batch.
pub(super) struct Sequence<B: Backend> {
    values: Vec<Value<B>>,
    positions: usize,
    rows: OnceCell<Value<B>>,
}

impl<B: FusedOps> Sequence<B> {
    /// Creates the sequence from its values in order.
    pub(super) fn new(values: Vec<Value<B>>, positions: usize) -> Self {
        Self { values, positions, rows: OnceCell::new() }
    }

    /// Returns all values, `[positions · batch_size, features]`.
    pub(super) fn rows(&self) -> Value<B> {
        self.rows.get_or_init(|| Value::cat(self.values.clone(), 0)).clone()
    }

    /// Returns all values, `[positions, batch_size, features]`.
    pub(super) fn by_position(&self) -> Value<B> {
        let rows = self.rows();
        let [count, features] = rows.dims();
        rows.reshape([self.positions, count / self.positions, features])
    }

    /// Returns some columns, `[batch_size, positions, columns]`, in this order in memory, because
    /// the rules read them several times.
    pub(super) fn by_example(&self, columns: Range<usize>) -> Value<B> {
        let values: Vec<_> = self.values.iter().map(|value| &value.0).collect();
        match B::by_example(&values, self.positions, columns.clone()) {
            Some(native) => Value(native),
            None => self.by_example_by_operations(columns),
        }
    }

    fn by_example_by_operations(&self, columns: Range<usize>) -> Value<B> {
        let columns = self.by_position().narrow(2, columns.start, columns.len());
        let [positions, batch_size, features] = columns.dims();
        columns
            .swap_dims(0, 1)
            .reshape([batch_size, positions * features])
            .reshape([batch_size, positions, features])
    }

    pub(super) fn features(&self) -> usize {
        self.values[0].dims::<2>()[1]
    }
}

impl<B: FusedOps> LayerInput<B> {
    /// Returns the input, `[positions · batch_size, d]`.
    fn rows(&self) -> Option<Value<B>> {
        match self {
            Self::Batch(input) => {
                let [batch_size, positions, features] = input.dims();
                Some(input.clone().swap_dims(0, 1).reshape([positions * batch_size, features]))
            }
            Self::Sequence(sequence) => Some(sequence.rows()),
            Self::Dropped => None,
        }
    }

    /// Returns the input, `[batch_size, positions, d]`.
    pub(super) fn by_example(&self) -> Option<Value<B>> {
        match self {
            Self::Batch(input) => Some(input.clone()),
            Self::Sequence(sequence) => Some(sequence.by_example(0..sequence.features())),
            Self::Dropped => None,
        }
    }
}

impl<B: FusedOps> Use<B> {
    /// Returns the gradient of the weights of the gates, side by side, summed over positions and
    /// examples: `[d, gates · d_hidden]`.
    pub(super) fn weight_grad(&self, products: &Sequence<B>, size: usize) -> Option<Value<B>> {
        Some(self.input.rows()?.swap_dims(0, 1).matmul(self.of_gates(products, size)))
    }

    /// Returns the gradient of the biases of the gates, side by side, summed over positions and
    /// examples: `[1, gates · d_hidden]`.
    pub(super) fn bias_grad(&self, products: &Sequence<B>, size: usize) -> Value<B> {
        Value(sum_axis::<B>(self.of_gates(products, size).0, 0))
    }

    /// Returns the gradients of the products of the gates, `[positions · batch_size, ..]`.
    fn of_gates(&self, products: &Sequence<B>, size: usize) -> Value<B> {
        let columns = self.gates.len() * size;
        match products.rows() {
            rows if columns == products.features() => rows,
            rows => rows.narrow(1, self.gates.start * size, columns),
        }
    }
}

/// Passes on one record for all positions; `input` is `None` if the weight of the layer is not
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

#[cfg(all(test, feature = "flex"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::Flex;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::recurrent::oracle::{ramp, values};

    proptest! {
        #[test]
        fn native_order_by_example_equals_the_operations_of_burn(
            positions in 1usize..5,
            parts in prop::collection::vec(0usize..40, 1..4),
            size in 1usize..70,
            gates in 1usize..5,
            index in 0usize..4,
        ) {
            let indices = (0..positions).flat_map(|position| {
                parts.iter().map(move |&examples| (position, examples))
            });
            let matrices = indices.enumerate().map(|(index, (_, examples))| {
                ramp([examples, gates * size], index as f32)
            });
            let sequence = Sequence::new(matrices.collect(), positions);
            let gate = index % gates;
            let columns = gate * size..(gate + 1) * size;

            let matrices: Vec<_> = sequence.values.iter().map(|value| &value.0).collect();
            let native = Flex::by_example(&matrices, positions, columns.clone());
            prop_assert_eq!(native.is_none(), parts.iter().sum::<usize>() == 0);
            if let Some(native) = native {
                let expected = sequence.by_example_by_operations(columns);
                prop_assert_eq!(values(&Value(native)), values(&expected));
            }
        }
    }
}
