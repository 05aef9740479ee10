use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use super::positions::{flat, regrouped};
use crate::grads::rules::rule::size;
use crate::grads::rules::{Restriction, SquaredNorms, ghost};
use crate::ops::{row_sums, scaled_examples};

/// Positions whose left factor is a unit vector.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    /// `[batch_size, positions]`: the indices of the unit vectors.
    pub(super) ids: Tensor<2, Int>,
    /// `[batch_size, positions, columns]`.
    pub(super) right: Tensor<3>,
}

impl Indexed {
    pub(super) fn concatenate(mut uses: Vec<Self>) -> Option<Self> {
        if uses.len() < 2 {
            return uses.pop();
        }
        let (ids, right) = uses.into_iter().map(|part| (part.ids, part.right)).unzip();
        Some(Self { ids: Tensor::cat(ids, 1), right: Tensor::cat(right, 1) })
    }

    pub(super) fn kept_values(&self) -> usize {
        size(self.ids.shape()) + size(self.right.shape())
    }

    pub(super) fn batch_size(&self) -> usize {
        self.right.dims()[0]
    }

    pub(super) fn positions(&self) -> usize {
        self.right.dims()[1]
    }

    pub(super) fn ghost_norms(&self) -> SquaredNorms {
        ghost::indexed(self.ids.clone(), self.right.clone())
    }

    /// Returns the norms of the outer products, rounded up: `[batch_size, positions]`.
    pub(super) fn lengths(&self) -> Tensor<2> {
        ghost::lengths(self.right.clone())
    }

    /// Adds every position to the row of its example and index in `gradients`,
    /// `[batch_size, rows, columns]`.
    pub(super) fn add_to(&self, gradients: Tensor<3>) -> Tensor<3> {
        let [_, rows, columns] = gradients.dims();
        let [batch_size, positions] = self.ids.dims();
        let device = self.right.device();
        let first = Tensor::<1, Int>::arange(0..batch_size as i64, &device)
            .mul_scalar(rows as i64)
            .cast(self.ids.dtype())
            .reshape([batch_size, 1]);
        let index = (self.ids.clone() + first).reshape([batch_size * positions]);
        gradients
            .reshape([batch_size * rows, columns])
            .select_assign(0, index, flat(self.right.clone()), IndexingUpdateOp::Add)
            .reshape([batch_size, rows, columns])
    }

    /// Returns the gradients, `[batch_size, rows, columns]`.
    pub(super) fn instantiate(&self, rows: usize) -> Tensor<3> {
        let [batch_size, _, columns] = self.right.dims();
        let options = (&self.right.device(), self.right.dtype());
        self.add_to(Tensor::zeros([batch_size, rows, columns], options))
    }

    /// Returns the product of each gradient with `direction`, `[rows, columns]`: `[batch_size]`.
    pub(super) fn products(&self, direction: Tensor<2>) -> Tensor<1> {
        let [batch_size, positions, columns] = self.right.dims();
        let ids = self.ids.clone().reshape([batch_size * positions]);
        let products = direction.select(0, ids) * flat(self.right.clone());
        row_sums(products.reshape([batch_size, positions * columns]))
    }

    pub(super) fn weighted_sum(&self, rows: usize, coefficients: Tensor<1>) -> Tensor<2> {
        let [batch_size, positions] = self.ids.dims();
        let scaled = flat(scaled_examples(self.right.clone(), coefficients));
        let columns = scaled.dims()[1];
        let ids = self.ids.clone().reshape([batch_size * positions]);
        Tensor::<2>::zeros([rows, columns], (&scaled.device(), scaled.dtype())).select_assign(
            0,
            ids,
            scaled,
            IndexingUpdateOp::Add,
        )
    }

    pub(super) fn restrict(&self, examples: &Restriction) -> Self {
        Self { ids: examples.apply_ids(&self.ids), right: examples.apply_scaled(&self.right) }
    }

    pub(super) fn regroup(&self, group_size: usize) -> Self {
        let [rows, positions] = self.ids.dims();
        let ids = self.ids.clone().reshape([rows / group_size, positions * group_size]);
        Self { ids, right: regrouped(&self.right, group_size) }
    }
}
