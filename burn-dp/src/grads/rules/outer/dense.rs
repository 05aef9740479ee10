use burn::tensor::Tensor;

use super::positions::{flat, regrouped};
use crate::grads::rules::rule::size;
use crate::grads::rules::{Factors, Restriction, SquaredNorms, ghost};
use crate::ops::{row_sums, scaled_examples, weighted_outer_products};

/// Positions with two dense factors.
#[derive(Clone, Debug)]
pub(super) struct Dense {
    /// `[batch_size, positions, rows]`.
    pub(super) left: Tensor<3>,
    /// `[batch_size, positions, columns]`.
    pub(super) right: Tensor<3>,
    /// The right factor if it has one position, as the gradient of a bias has it: `[batch_size,
    /// columns]`.
    pub(super) right_rows: Option<Tensor<2>>,
}

impl Dense {
    pub(super) fn new(left: Tensor<3>, right: Tensor<3>) -> Self {
        Self { left, right, right_rows: None }
    }

    pub(super) fn concatenate(mut uses: Vec<Self>) -> Option<Self> {
        if uses.len() < 2 {
            return uses.pop();
        }
        let (left, right) = uses.into_iter().map(|part| (part.left, part.right)).unzip();
        Some(Self::new(Tensor::cat(left, 1), Tensor::cat(right, 1)))
    }

    pub(super) fn kept_values(&self) -> usize {
        size(self.left.shape()) + size(self.right.shape())
    }

    pub(super) fn batch_size(&self) -> usize {
        self.right.dims()[0]
    }

    pub(super) fn positions(&self) -> usize {
        self.left.dims()[1]
    }

    pub(super) fn ghost_norms(&self, factors: &mut Factors) -> SquaredNorms {
        match &self.right_rows {
            Some(rows) => {
                ghost::outer_rows(self.left.clone().squeeze_dim(1), rows.clone(), factors)
            }
            None => ghost::outer(self.left.clone(), self.right.clone(), factors),
        }
    }

    /// Returns bounds on the norms of the outer products: `[batch_size, positions]`.
    pub(super) fn lengths(&self) -> Tensor<2> {
        ghost::lengths(self.left.clone()) * ghost::lengths(self.right.clone())
    }

    pub(super) fn instantiate(&self) -> Tensor<3> {
        self.left.clone().swap_dims(1, 2).matmul(self.right.clone())
    }

    /// Returns the product of each gradient with `direction`, `[rows, columns]`: `[batch_size]`.
    pub(super) fn products(&self, direction: Tensor<2>) -> Tensor<1> {
        let [batch_size, positions, columns] = self.right.dims();
        let products = flat(self.left.clone()).matmul(direction) * flat(self.right.clone());
        row_sums(products.reshape([batch_size, positions * columns]))
    }

    pub(super) fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<2> {
        let (left, right) = (self.left.clone(), self.right.clone());
        weighted_outer_products(left, right, coefficients.clone()).unwrap_or_else(|| {
            let scaled = flat(scaled_examples(self.right.clone(), coefficients));
            flat(self.left.clone()).transpose().matmul(scaled)
        })
    }

    pub(super) fn restrict(&self, examples: &Restriction) -> Self {
        match examples {
            Restriction::All => self.clone(),
            _ => Self::new(examples.apply(&self.left), examples.apply_scaled(&self.right)),
        }
    }

    pub(super) fn regroup(&self, group_size: usize) -> Self {
        Self::new(regrouped(&self.left, group_size), regrouped(&self.right, group_size))
    }
}
