use burn::module::ParamId;
use burn::tensor::{Int, Shape, Tensor};

use super::outer::OuterProducts;
use super::{Contribution, Rule};
use crate::ops::recording::RawRecord;
use crate::ops::{self, LayerIds, Primitive, Slot};

/// The record of one use of a layer, from which a rule takes its tensors and to which it adds its
/// contributions.
pub(super) struct Record<'a> {
    /// A plain tensor of the backend that recorded.
    witness: &'a Tensor<1>,
    layer: LayerIds,
    weight: Option<Shape>,
    trains_bias: bool,
    kept: std::vec::IntoIter<Slot>,
    ids: Option<Slot>,
    output_grad: Option<Slot>,
    pub(super) batch_size: usize,
    pub(super) contributions: Vec<(ParamId, Contribution)>,
}

impl<'a> Record<'a> {
    pub(super) fn new(record: RawRecord, witness: &'a Tensor<1>) -> (Primitive, Self) {
        let RawRecord { layer, primitive, weight, bias, kept, ids, output_grad } = record;
        let record = Self {
            witness,
            layer,
            weight,
            trains_bias: bias,
            kept: kept.into_iter(),
            ids,
            output_grad: Some(output_grad),
            batch_size: 0,
            contributions: Vec::with_capacity(2),
        };
        (primitive, record)
    }

    fn take<const D: usize>(&self, slot: Slot) -> Tensor<D> {
        ops::single(ops::take(self.witness, slot))
    }

    /// Takes the gradient of the output. Every rule takes it once.
    pub(super) fn output_grad<const D: usize>(&mut self) -> Tensor<D> {
        let Some(slot) = self.output_grad.take() else {
            unreachable!("a rule takes the gradient of the output once");
        };
        let output_grad = self.take(slot);
        self.batch_size = output_grad.dims()[0];
        output_grad
    }

    /// Takes the next tensor that the forward pass kept; `None` if only the bias is trained.
    pub(super) fn kept<const D: usize>(&mut self) -> Option<Tensor<D>> {
        self.kept.next().map(|slot| self.take(slot))
    }

    /// Takes the indices that the forward pass kept.
    pub(super) fn ids(&mut self) -> Option<Tensor<2, Int>> {
        self.ids.take().map(|slot| ops::take_ids(self.witness, slot))
    }

    /// Takes the shape of the weight; `None` if it is not trained.
    pub(super) fn weight(&mut self) -> Option<Shape> {
        self.weight.take()
    }

    /// Returns the bias; `None` if it is not trained.
    pub(super) fn bias(&self) -> Option<ParamId> {
        self.layer.bias.filter(|_| self.trains_bias)
    }

    /// Adds the contribution to the weight.
    pub(super) fn push(&mut self, rule: impl Rule + 'static) {
        self.push_to(self.layer.weight, rule);
    }

    /// Adds a contribution to the parameter `id`.
    pub(super) fn push_to(&mut self, id: ParamId, rule: impl Rule + 'static) {
        self.contributions.push((id, Contribution::Other(Box::new(rule))));
    }

    /// Adds the contribution to the weight as outer products.
    pub(super) fn push_outer(&mut self, outer: OuterProducts) {
        self.contributions.push((self.layer.weight, Contribution::Outer(outer)));
    }
}
