//! Convolutions as linear layers whose positions are pixels.

use burn::tensor::Tensor;

use crate::grads::rules::{
    Cost, Factors, Magnitudes, Restriction, Rounding, Rule, SquaredNorms, Transposed, ghost,
};
use crate::ops::{additions, row_sums};

/// A rule whose gradients are products of columns and pixels.
pub(super) trait ColumnRule: std::fmt::Debug {
    /// Returns the number of values that the rule keeps.
    fn kept_values(&self) -> usize;

    /// Returns the number of examples.
    fn batch_size(&self) -> usize;

    /// Returns the sizes of the columns.
    fn sizes(&self) -> Sizes;

    /// Computes the columns and the pixels.
    fn columns(&self) -> Columns;

    /// Returns `Σ_i coefficients[i] · gradient_i`, flattened: `[values]`.
    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        self.columns().weighted_sum(coefficients)
    }

    /// Returns the per-example gradients if no columns are needed.
    fn without_columns(&self) -> Option<Transposed> {
        None
    }

    /// Returns the rule for some of the examples.
    fn restrict(&self, examples: &Restriction) -> Self;
}

impl<R: ColumnRule + 'static> Rule for R {
    fn kept_values(&self) -> usize {
        ColumnRule::kept_values(self)
    }

    fn batch_size(&self) -> usize {
        ColumnRule::batch_size(self)
    }

    fn cost(&self) -> Cost {
        self.sizes().cost()
    }

    fn ghost_norms(&self, _: &mut Factors) -> Option<SquaredNorms> {
        Some(self.columns().ghost_norms())
    }

    fn magnitudes(&self) -> Option<Magnitudes> {
        Some(self.columns().magnitudes())
    }

    fn instantiate(&self) -> Tensor<2> {
        let gradients = self.without_columns().map(Transposed::in_order);
        gradients.unwrap_or_else(|| self.columns().instantiate())
    }

    fn instantiate_at_once(&self) -> Option<Transposed> {
        self.without_columns()
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        ColumnRule::weighted_sum(self, coefficients)
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(ColumnRule::restrict(self, examples))
    }
}

/// The factors of the linear rule that a convolution becomes.
pub(super) struct Columns {
    /// The values under the kernel, `[batch_size · groups, d_input, positions]`.
    pub(super) columns: Tensor<3>,
    /// The values that its positions are paired with, `[batch_size · groups, d_output, positions]`.
    pub(super) pixels: Tensor<3>,
    /// Number of groups.
    pub(super) groups: usize,
}

impl Columns {
    /// Returns the squared norms from Gram matrices, `[batch_size]`.
    fn ghost_norms(self) -> SquaredNorms {
        let groups = self.groups;
        // Patches belong to one parameter and are large, so none are kept.
        let (columns, pixels) = (self.columns.swap_dims(1, 2), self.pixels.swap_dims(1, 2));
        let norms = ghost::outer(columns, pixels, &mut Factors::default());
        let values = sum_groups(norms.values, groups);
        let added = additions(groups);
        match norms.rounding {
            Rounding::Relative => {
                // One more for this product.
                let rounding = (added + 1) as f64 * f64::from(f32::EPSILON);
                let values = if groups == 1 { values } else { values.mul_scalar(1.0 + rounding) };
                SquaredNorms { values, rounding: Rounding::Relative }
            }
            Rounding::Gram { magnitudes, roundings } => SquaredNorms {
                values,
                rounding: Rounding::Gram {
                    magnitudes: magnitudes.of_groups(groups),
                    roundings: roundings + added,
                },
            },
            Rounding::Reordered(magnitudes) => {
                let rounding = Rounding::Reordered(magnitudes.of_groups(groups));
                SquaredNorms { values, rounding }
            }
        }
    }

    /// Returns bounds on the terms `Σ_t ‖column_t‖‖pixel_t‖` of all groups.
    fn magnitudes(self) -> Magnitudes {
        let (columns, pixels) = (self.columns.swap_dims(1, 2), self.pixels.swap_dims(1, 2));
        ghost::magnitudes(columns, pixels).of_groups(self.groups)
    }

    /// Returns the gradients in the layout of the weight,
    /// `[batch_size, d_output of all groups · d_input]`.
    pub(super) fn instantiate(self) -> Tensor<2> {
        let [rows, d_input, _] = self.columns.dims();
        let [_, d_output, _] = self.pixels.dims();
        self.pixels
            .matmul(self.columns.swap_dims(1, 2))
            .reshape([rows / self.groups, self.groups * d_output * d_input])
    }

    /// Returns the weighted sum of the gradients over the batch, `[values]`.
    fn weighted_sum(self, coefficients: Tensor<1>) -> Tensor<1> {
        let [rows, d_input, positions] = self.columns.dims();
        let [_, d_output, _] = self.pixels.dims();
        let (groups, batch_size) = (self.groups, rows / self.groups);
        // All positions of the batch are positions of each group.
        let gather = |tensor: Tensor<4>, features| -> Tensor<3> {
            tensor.permute([1, 2, 0, 3]).reshape([groups, features, batch_size * positions])
        };
        let pixels = self.pixels.reshape([batch_size, groups, d_output, positions]);
        let pixels = gather(pixels * coefficients.reshape([batch_size, 1, 1, 1]), d_output);
        let columns = self.columns.reshape([batch_size, groups, d_input, positions]);
        let columns = gather(columns, d_input);
        pixels.matmul(columns.swap_dims(1, 2)).reshape([groups * d_output * d_input])
    }
}

impl Magnitudes {
    /// Adds the squares of the groups of each example.
    fn of_groups(self, groups: usize) -> Self {
        Self { squared: sum_groups(self.squared, groups), ..self }
    }
}

fn sum_groups(values: Tensor<1>, groups: usize) -> Tensor<1> {
    let batch_size = values.dims()[0] / groups;
    row_sums(values.reshape([batch_size, groups]))
}

/// Sizes of [`Columns`], for one group.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) groups: usize,
    pub(super) positions: usize,
    pub(super) d_input: usize,
    pub(super) d_output: usize,
}

impl Sizes {
    fn cost(self) -> Cost {
        let Self { groups, positions, d_input, d_output } = self;
        // In a browser a product of sizes can exceed `usize`.
        let squared = (positions as f64).powi(2);
        Cost {
            ghost_flops: Some(2.0 * groups as f64 * squared * (d_input + d_output) as f64),
            ghost_temporary: (groups * positions).saturating_mul(2 * positions + d_input),
            formation_flops: 2.0 * (groups * positions) as f64 * (d_input * d_output) as f64,
            values: groups * d_input * d_output,
            temporary: (groups * positions).saturating_mul(d_input),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::grads::oracle::{host, numbers};
    use crate::test_devices::devices;

    /// Returns the norms of three examples, whose groups are equal.
    fn norms(groups: usize, positions: usize, device: &Device) -> SquaredNorms {
        let equal = |features, seed| {
            let one: Tensor<3> = numbers([3, 1, features * positions], seed, device);
            one.repeat_dim(1, groups).reshape([3 * groups, features, positions])
        };
        Columns { columns: equal(5, 1), pixels: equal(4, 2), groups }.ghost_norms()
    }

    #[test]
    fn roundings_of_the_sum_over_groups_are_added() {
        for device in devices() {
            // The sum of two equal numbers is exact, so that only the margin is left: one for the
            // addition, and one for the product with the margin.
            let [one, two] = [1, 2].map(|groups| host(norms(groups, 1, &device).values));
            for (one, two) in one.into_iter().zip(two) {
                let units = (two / (2.0 * one) - 1.0) / f64::from(f32::EPSILON);
                assert!((1.5..=2.5).contains(&units), "{units} on {device:?}");
            }
            let roundings = |groups| match norms(groups, 2, &device).rounding {
                Rounding::Gram { roundings, .. } => roundings,
                _ => panic!("norms of several positions are products of Gram matrices"),
            };
            assert_eq!(roundings(3), roundings(1) + 2);
        }
    }
}
