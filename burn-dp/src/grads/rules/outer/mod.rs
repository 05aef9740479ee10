//! Sums of outer products over positions, which linear layers and embeddings share.

mod dense;
mod indexed;
mod positions;

use burn::tensor::{Int, Tensor};

use super::rule::rows;
use super::{Cost, Factors, Keep, Magnitudes, Restriction, Rounding, Rule, SquaredNorms, ghost};
use crate::ops::selected_outer_products;
use dense::Dense;
use indexed::Indexed;

/// A weight whose gradient is a sum of outer products over positions: the weight of a linear layer,
/// of an embedding, or of both at once.
///
/// All uses of a weight in one forward pass are positions of one sum, because their cross terms
/// enter its norm.
#[derive(Clone, Debug)]
pub(in crate::grads) struct OuterProducts {
    /// `[rows, columns]` of the weight.
    weight: [usize; 2],
    dense: Option<Dense>,
    indexed: Option<Indexed>,
}

impl OuterProducts {
    /// Represents `Σ_t left_tᵀ right_t`.
    ///
    /// # Shapes
    ///
    /// - left: `[batch_size, positions, rows]`
    /// - right: `[batch_size, positions, columns]`
    pub(in crate::grads) fn dense(left: Tensor<3>, right: Tensor<3>) -> Self {
        let weight = [left.dims()[2], right.dims()[2]];
        Self { weight, dense: Some(Dense::new(left, right)), indexed: None }
    }

    /// Represents `leftᵀ right` with one position, whose right factor is also the gradient of a
    /// bias: its norms are computed once.
    ///
    /// # Shapes
    ///
    /// - left: `[batch_size, 1, rows]`
    /// - right: `[batch_size, 1, columns]`
    /// - right_rows: the same, `[batch_size, columns]`
    pub(super) fn with_rows(left: Tensor<3>, right: Tensor<3>, right_rows: Tensor<2>) -> Self {
        let mut outer = Self::dense(left, right);
        outer.dense.iter_mut().for_each(|dense| dense.right_rows = Some(right_rows.clone()));
        outer
    }

    /// Represents `Σ_t e_{ids[t]} right_tᵀ`, where e_v is a unit vector of length `rows`.
    ///
    /// # Shapes
    ///
    /// - ids: `[batch_size, positions]`
    /// - right: `[batch_size, positions, columns]`
    pub(in crate::grads) fn indexed(rows: usize, ids: Tensor<2, Int>, right: Tensor<3>) -> Self {
        let weight = [rows, right.dims()[2]];
        Self { weight, dense: None, indexed: Some(Indexed { ids, right }) }
    }

    /// Concatenates the positions of all uses of one weight.
    pub(super) fn concatenate(uses: Vec<Self>) -> Option<Self> {
        let weight = uses.first()?.weight;
        let (mut dense, mut indexed) = (Vec::new(), Vec::new());
        for part in uses {
            dense.extend(part.dense);
            indexed.extend(part.indexed);
        }
        Some(Self {
            weight,
            dense: Dense::concatenate(dense),
            indexed: Indexed::concatenate(indexed),
        })
    }
}

impl Rule for OuterProducts {
    fn kept_values(&self) -> usize {
        self.dense.as_ref().map_or(0, Dense::kept_values)
            + self.indexed.as_ref().map_or(0, Indexed::kept_values)
    }

    fn batch_size(&self) -> usize {
        let dense = self.dense.as_ref().map(Dense::batch_size);
        dense.or_else(|| self.indexed.as_ref().map(Indexed::batch_size)).unwrap_or_default()
    }

    fn cost(&self) -> Cost {
        let [rows, columns] = self.weight;
        let dense = self.dense.as_ref().map_or(0, Dense::positions);
        let indexed = self.indexed.as_ref().map_or(0, Indexed::positions);
        let flops = match dense {
            // The gradient of an embedding alone is mostly zeros and is never worth its memory.
            0 => 0.0,
            _ => {
                // In a browser a product of sizes can exceed `usize`.
                let [dense, indexed, rows, columns] =
                    [dense, indexed, rows, columns].map(|size| size as f64);
                let pairs_by_column = dense * dense + indexed * indexed + dense * indexed;
                2.0 * (dense * dense * rows + pairs_by_column * columns)
            }
        };
        Cost {
            ghost_flops: Some(flops),
            ghost_temporary: match (dense, indexed) {
                (1, 0) => 0,
                (dense, indexed) => (2 * (dense + indexed)).saturating_mul(dense + indexed),
            },
            formation_flops: 2.0 * dense as f64 * (rows * columns) as f64,
            values: rows * columns,
            temporary: 0,
        }
    }

    fn ghost_norms(&self, factors: &mut Factors) -> Option<SquaredNorms> {
        let (Some(d), Some(i)) = (&self.dense, &self.indexed) else {
            let dense = self.dense.as_ref().map(|dense| dense.ghost_norms(factors));
            return dense.or_else(|| self.indexed.as_ref().map(Indexed::ghost_norms));
        };
        let (cross, roundings) =
            ghost::cross(d.left.clone(), d.right.clone(), i.ids.clone(), i.right.clone());
        let (dense, indexed) = (d.ghost_norms(factors), i.ghost_norms());
        let of_parts = dense.rounding.of_products().max(indexed.rounding.of_products());
        Some(SquaredNorms {
            values: dense.values + indexed.values + cross,
            rounding: Rounding::Gram {
                magnitudes: self.magnitudes()?,
                // The last two add the parts.
                roundings: roundings.max(of_parts) + 2,
            },
        })
    }

    fn magnitudes(&self) -> Option<Magnitudes> {
        let dense = self.dense.as_ref().map(Dense::lengths);
        let indexed = self.indexed.as_ref().map(Indexed::lengths);
        let lengths: Vec<_> = dense.into_iter().chain(indexed).collect();
        (!lengths.is_empty()).then(|| {
            let lengths = Tensor::cat(lengths, 1);
            let [_, positions] = lengths.dims();
            let roundings = ghost::sum_roundings(positions);
            Magnitudes { squared: ghost::squared_totals(lengths), roundings }
        })
    }

    fn instantiate(&self) -> Tensor<2> {
        rows(match (&self.dense, &self.indexed) {
            (Some(dense), None) => dense.instantiate(),
            (Some(dense), Some(indexed)) => indexed.add_to(dense.instantiate()),
            (None, Some(indexed)) => indexed.instantiate(self.weight[0]),
            (None, None) => unreachable!("a rule has at least one use"),
        })
    }

    /// Adds positions with indices to the rows of `gradients`, without a separate dense gradient.
    fn add_to(&self, gradients: Tensor<2>) -> Tensor<2> {
        match (&self.dense, &self.indexed) {
            (None, Some(indexed)) => {
                let [rows_of_weight, columns] = self.weight;
                let [batch_size, _] = gradients.dims();
                rows(indexed.add_to(gradients.reshape([batch_size, rows_of_weight, columns])))
            }
            _ => gradients + self.instantiate(),
        }
    }

    fn products(&self, direction: Tensor<1>) -> Option<Tensor<1>> {
        let direction: Tensor<2> = direction.reshape(self.weight);
        let dense = self.dense.as_ref().map(|dense| dense.products(direction.clone()));
        let indexed = self.indexed.as_ref().map(|indexed| indexed.products(direction));
        match (dense, indexed) {
            (Some(dense), Some(indexed)) => Some(dense + indexed),
            (dense, indexed) => dense.or(indexed),
        }
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let dense = self.dense.as_ref().map(|dense| dense.weighted_sum(coefficients.clone()));
        let indexed =
            self.indexed.as_ref().map(|indexed| indexed.weighted_sum(self.weight[0], coefficients));
        let sum = match (dense, indexed) {
            (Some(dense), Some(indexed)) => dense + indexed,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => unreachable!("a rule has at least one use"),
        };
        sum.reshape([self.weight[0] * self.weight[1]])
    }

    fn kept_sum(&self, coefficients: Tensor<1>, keep: &Keep) -> Tensor<1> {
        if let Self { weight, dense: Some(Dense { left, right, .. }), indexed: None } = self
            && let Some(sum) = selected_outer_products(left, right, &coefficients)
        {
            return sum.reshape([weight[0] * weight[1]]);
        }
        self.restrict(&Restriction::Keep(keep)).weighted_sum(coefficients)
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self {
            weight: self.weight,
            dense: self.dense.as_ref().map(|dense| dense.restrict(examples)),
            indexed: self.indexed.as_ref().map(|indexed| indexed.restrict(examples)),
        })
    }

    /// Turns the rows of every unit into positions of one example.
    fn regroup(&self, group_size: usize) -> Option<Box<dyn Rule>> {
        Some(Box::new(Self {
            weight: self.weight,
            dense: self.dense.as_ref().map(|dense| dense.regroup(group_size)),
            indexed: self.indexed.as_ref().map(|indexed| indexed.regroup(group_size)),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::grads::oracle::{assert_equal, numbers};
    use crate::test_devices::devices;

    #[test]
    fn terms_of_dense_and_indexed_positions_are_added() {
        for device in devices() {
            let left: Tensor<3> = numbers([2, 2, 3], 1, &device);
            let right: Tensor<3> = numbers([2, 2, 4], 2, &device);
            let ids = Tensor::<2, Int>::from_ints([[0, 1, 0], [2, 2, 1]], &device);
            let rows: Tensor<3> = numbers([2, 3, 4], 3, &device);
            let dense = OuterProducts::dense(left.clone(), right.clone());
            let indexed = OuterProducts::indexed(3, ids.clone(), rows.clone());
            let both = OuterProducts::concatenate(vec![dense.clone(), indexed.clone()]).unwrap();

            let lengths = |x: &Tensor<3>| x.clone().square().sum_dim(2).sqrt();
            let total = |lengths: Tensor<3>| lengths.sum_dim(1).reshape([2]);
            let of_dense: Tensor<1> = total(lengths(&left) * lengths(&right));
            let of_indexed: Tensor<1> = total(lengths(&rows));
            let of_both = of_dense.clone() + of_indexed.clone();
            for (rule, expected, roundings) in
                [(&dense, of_dense, 3), (&indexed, of_indexed, 4), (&both, of_both, 6)]
            {
                assert_eq!(rule.batch_size(), 2);
                let magnitudes = rule.magnitudes().unwrap();
                assert_eq!(magnitudes.roundings, roundings);
                assert_equal(magnitudes.squared.sqrt(), expected, 1e-5);
                let direction: Tensor<1> = numbers([12], 4, &device);
                let products = rule.instantiate() * direction.clone().unsqueeze_dim(0);
                let found = rule.products(direction).unwrap();
                assert_equal(found, products.sum_dim(1).reshape([2]), 1e-5);
            }

            let roundings = |rule: &OuterProducts| {
                rule.ghost_norms(&mut Factors::default()).unwrap().rounding.of_products()
            };
            let (_, of_cross) = ghost::cross(left, right, ids, rows);
            let most = of_cross.max(roundings(&dense)).max(roundings(&indexed));
            assert_eq!(roundings(&both), most + 2);
        }
    }
}
