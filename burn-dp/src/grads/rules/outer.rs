use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use super::{Cost, Restriction, Rounding, Rule, SquaredNorms, ghost, size};

/// A weight whose gradient is a sum of outer products over positions: the weight of a linear layer, of
/// an embedding, or of both at once.
///
/// For `output = input @ weight` the gradient of example i is `Σ_t input[i, t]ᵀ output_grad[i, t]`. An
/// embedding is a linear layer whose inputs are unit vectors, of which the indices are kept. All uses of
/// a weight in one forward pass are positions of one sum: their cross terms count.
///
/// # References
///
/// Goodfellow, Efficient per-example gradient computations, 2015; Lee and Kifer, Scaling up
/// differentially private deep learning with fast per-example gradient clipping, 2021, section 5;
/// Li, Tramèr, Liang, Hashimoto, Large language models can be strong differentially private
/// learners, 2022 (the norm for several positions); Bu, Wang, Zha, Karypis, Differentially private
/// optimization on large model at small cost, 2023 (the weighted sum in the same pass).
#[derive(Clone, Debug)]
pub(crate) struct OuterProducts {
    /// `[rows, columns]` of the weight.
    weight: [usize; 2],
    dense: Option<Dense>,
    indexed: Option<Indexed>,
}

/// Positions with two dense factors.
#[derive(Clone, Debug)]
struct Dense {
    /// `[batch_size, positions, rows]`.
    left: Tensor<3>,
    /// `[batch_size, positions, columns]`.
    right: Tensor<3>,
}

/// Positions whose left factor is a unit vector.
#[derive(Clone, Debug)]
struct Indexed {
    /// `[batch_size, positions]`: which unit vector.
    ids: Tensor<2, Int>,
    /// `[batch_size, positions, columns]`.
    right: Tensor<3>,
}

impl OuterProducts {
    /// `Σ_t left_tᵀ right_t`.
    ///
    /// # Shapes
    ///
    /// - left: `[batch_size, positions, rows]`
    /// - right: `[batch_size, positions, columns]`
    pub(crate) fn dense(left: Tensor<3>, right: Tensor<3>) -> Self {
        let weight = [left.dims()[2], right.dims()[2]];
        Self { weight, dense: Some(Dense { left, right }), indexed: None }
    }

    /// `Σ_t e_{ids[t]} right_tᵀ`.
    ///
    /// # Shapes
    ///
    /// - ids: `[batch_size, positions]`
    /// - right: `[batch_size, positions, columns]`
    pub(crate) fn indexed(rows: usize, ids: Tensor<2, Int>, right: Tensor<3>) -> Self {
        let weight = [rows, right.dims()[2]];
        Self { weight, dense: None, indexed: Some(Indexed { ids, right }) }
    }

    /// The positions of all uses of one weight.
    pub(crate) fn concatenate(uses: Vec<Self>) -> Option<Self> {
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

impl Dense {
    fn concatenate(mut uses: Vec<Self>) -> Option<Self> {
        if uses.len() < 2 {
            return uses.pop();
        }
        let (left, right) = uses.into_iter().map(|part| (part.left, part.right)).unzip();
        Some(Self { left: Tensor::cat(left, 1), right: Tensor::cat(right, 1) })
    }

    fn positions(&self) -> usize {
        self.left.dims()[1]
    }

    fn instantiate(&self) -> Tensor<3> {
        self.left.clone().swap_dims(1, 2).matmul(self.right.clone())
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<2> {
        let scaled = flat(scale(&self.right, coefficients));
        flat(self.left.clone()).transpose().matmul(scaled)
    }
}

impl Indexed {
    fn concatenate(mut uses: Vec<Self>) -> Option<Self> {
        if uses.len() < 2 {
            return uses.pop();
        }
        let (ids, right) = uses.into_iter().map(|part| (part.ids, part.right)).unzip();
        Some(Self { ids: Tensor::cat(ids, 1), right: Tensor::cat(right, 1) })
    }

    fn positions(&self) -> usize {
        self.right.dims()[1]
    }

    /// Adds every position to the row of its example and id in `gradients`, `[batch_size, rows, columns]`.
    fn add_to(&self, gradients: Tensor<3>) -> Tensor<3> {
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

    fn weighted_sum(&self, weight: [usize; 2], coefficients: Tensor<1>) -> Tensor<2> {
        let [batch_size, positions] = self.ids.dims();
        let scaled = flat(scale(&self.right, coefficients));
        let ids = self.ids.clone().reshape([batch_size * positions]);
        Tensor::<2>::zeros(weight, (&scaled.device(), scaled.dtype())).select_assign(
            0,
            ids,
            scaled,
            IndexingUpdateOp::Add,
        )
    }
}

impl Rule for OuterProducts {
    fn kept_values(&self) -> usize {
        let dense = self
            .dense
            .as_ref()
            .map_or(0, |dense| size(dense.left.shape()) + size(dense.right.shape()));
        let indexed = self
            .indexed
            .as_ref()
            .map_or(0, |part| size(part.ids.shape()) + size(part.right.shape()));
        dense + indexed
    }

    fn batch_size(&self) -> usize {
        self.dense
            .as_ref()
            .map(|dense| dense.right.dims()[0])
            .or_else(|| self.indexed.as_ref().map(|indexed| indexed.right.dims()[0]))
            .unwrap_or_default()
    }

    fn cost(&self) -> Cost {
        let [rows, columns] = self.weight;
        let dense = self.dense.as_ref().map_or(0, Dense::positions);
        let indexed = self.indexed.as_ref().map_or(0, Indexed::positions);
        let flops = match dense {
            // The gradient of an embedding alone is mostly zeros and is never worth its memory.
            0 => 0.0,
            _ => {
                let pairs_by_column = dense * dense + indexed * indexed + dense * indexed;
                2.0 * (dense * dense * rows + pairs_by_column * columns) as f64
            }
        };
        Cost {
            ghost_flops: Some(flops),
            ghost_temporary: match (dense, indexed) {
                (1, 0) => 0,
                (dense, indexed) => 2 * (dense + indexed) * (dense + indexed),
            },
            values: rows * columns,
            temporary: 0,
        }
    }

    fn ghost_norms(&self) -> Option<SquaredNorms> {
        let dense = || self.dense.as_ref().map(|d| ghost::outer(d.left.clone(), d.right.clone()));
        let indexed =
            || self.indexed.as_ref().map(|i| ghost::indexed(i.ids.clone(), i.right.clone()));
        let (Some(d), Some(i)) = (&self.dense, &self.indexed) else {
            return dense().or_else(indexed);
        };
        let cross = ghost::cross(d.left.clone(), d.right.clone(), i.ids.clone(), i.right.clone());
        let values = dense()?.values + indexed()?.values + cross;
        Some(SquaredNorms { values, rounding: Rounding::Gram(self.magnitudes()?) })
    }

    fn magnitudes(&self) -> Option<Tensor<1>> {
        let dense = self
            .dense
            .as_ref()
            .map(|dense| ghost::lengths(dense.left.clone()) * ghost::lengths(dense.right.clone()));
        let indexed = self.indexed.as_ref().map(|indexed| ghost::lengths(indexed.right.clone()));
        let lengths: Vec<_> = dense.into_iter().chain(indexed).collect();
        (!lengths.is_empty()).then(|| ghost::squared_totals(Tensor::cat(lengths, 1)))
    }

    fn instantiate(&self) -> Tensor<2> {
        let [rows, columns] = self.weight;
        let gradients = match (&self.dense, &self.indexed) {
            (Some(dense), _) => dense.instantiate(),
            (None, Some(Indexed { right, .. })) => {
                Tensor::zeros([self.batch_size(), rows, columns], (&right.device(), right.dtype()))
            }
            (None, None) => unreachable!("a rule has at least one use"),
        };
        super::rows(match &self.indexed {
            Some(indexed) => indexed.add_to(gradients),
            None => gradients,
        })
    }

    /// Positions with indices go into the rows that are there, not into a dense gradient of their own.
    fn add_to(&self, gradients: Tensor<2>) -> Tensor<2> {
        match (&self.dense, &self.indexed) {
            (None, Some(indexed)) => {
                let [rows, columns] = self.weight;
                let [batch_size, _] = gradients.dims();
                super::rows(indexed.add_to(gradients.reshape([batch_size, rows, columns])))
            }
            _ => gradients + self.instantiate(),
        }
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let dense = self.dense.as_ref().map(|dense| dense.weighted_sum(coefficients.clone()));
        let indexed =
            self.indexed.as_ref().map(|indexed| indexed.weighted_sum(self.weight, coefficients));
        let sum = match (dense, indexed) {
            (Some(dense), Some(indexed)) => dense + indexed,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => unreachable!("a rule has at least one use"),
        };
        sum.reshape([self.weight[0] * self.weight[1]])
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self {
            weight: self.weight,
            dense: self.dense.as_ref().map(|dense| Dense {
                left: examples.apply(&dense.left),
                right: examples.apply(&dense.right),
            }),
            indexed: self.indexed.as_ref().map(|indexed| Indexed {
                ids: examples.apply_ids(&indexed.ids),
                right: examples.apply(&indexed.right),
            }),
        })
    }

    /// The rows of every unit as positions of one.
    fn regroup(&self, group_size: usize) -> Option<Box<dyn Rule>> {
        let regroup = |tensor: &Tensor<3>| {
            let [rows, positions, features] = tensor.dims();
            tensor.clone().reshape([rows / group_size, positions * group_size, features])
        };
        let regroup_ids = |ids: &Tensor<2, Int>| {
            let [rows, positions] = ids.dims();
            ids.clone().reshape([rows / group_size, positions * group_size])
        };
        Some(Box::new(Self {
            weight: self.weight,
            dense: self
                .dense
                .as_ref()
                .map(|dense| Dense { left: regroup(&dense.left), right: regroup(&dense.right) }),
            indexed: self.indexed.as_ref().map(|indexed| Indexed {
                ids: regroup_ids(&indexed.ids),
                right: regroup(&indexed.right),
            }),
        }))
    }
}

/// Every example times its coefficient.
fn scale(right: &Tensor<3>, coefficients: Tensor<1>) -> Tensor<3> {
    let [batch_size, ..] = right.dims();
    right.clone() * coefficients.reshape([batch_size, 1, 1])
}

/// All positions of all examples, `[batch_size · positions, features]`.
fn flat(tensor: Tensor<3>) -> Tensor<2> {
    let [batch_size, positions, features] = tensor.dims();
    tensor.reshape([batch_size * positions, features])
}
