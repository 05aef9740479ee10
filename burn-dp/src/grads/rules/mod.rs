//! The per-example rules, one a file: how the gradient of one parameter, for each example, follows
//! from what a layer kept and the gradient of its output.

mod columns;
mod conv;
mod cost;
mod deform;
mod ghost;
mod outer;
mod parameter;
mod restriction;
mod scale;
mod sum;

pub(crate) use conv::ConvWeight;
pub(crate) use cost::Cost;
pub(crate) use deform::DeformConvWeight;
pub(crate) use outer::OuterProducts;
pub(crate) use parameter::Repeated;
pub(crate) use restriction::{Keep, Restriction};
pub(crate) use scale::{Scale, Shift};
pub(crate) use sum::Summed;

use std::fmt::Debug;

use burn::tensor::{Shape, Tensor};

pub(crate) use crate::ops::row_squared_norms;

/// The contribution of a layer to one parameter.
pub(crate) trait Rule: Debug {
    /// Number of examples, or of units of several rows.
    fn batch_size(&self) -> usize;

    /// Costs for one example.
    fn cost(&self) -> Cost;

    /// Name of the rule.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Values that the rule keeps until the weighted sum.
    fn kept_values(&self) -> usize;

    /// Squared norms without forming the gradients, where the rule has such a way.
    fn ghost_norms(&self) -> Option<SquaredNorms> {
        None
    }

    /// Bounds `(Σ_t ‖a_t‖‖g_t‖)²` on what is added up to reach a gradient, `[batch_size]`; `None` where
    /// nothing can cancel that the weighted sum adds in another order.
    fn magnitudes(&self) -> Option<Tensor<1>> {
        None
    }

    /// The per-example gradients, `[batch_size, values]`, in the order of the parameter's values.
    fn instantiate(&self) -> Tensor<2>;

    /// Adds the per-example gradients to others of the same shape.
    fn add_to(&self, gradients: Tensor<2>) -> Tensor<2> {
        gradients + self.instantiate()
    }

    /// `Σ_i coefficients[i] · gradient_i`, flattened: `[values]`.
    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        weighted_rows(coefficients, self.instantiate())
    }

    /// The rule for some of the examples.
    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule>;

    /// Makes one example of every `group_size` rows where the rule can: positions of one unit.
    fn regroup(&self, group_size: usize) -> Option<Box<dyn Rule>> {
        (group_size == 1).then(|| self.restrict(&Restriction::All))
    }
}

/// Squared norms of the per-example gradients of one parameter.
pub(crate) struct SquaredNorms {
    /// `[batch_size]`.
    pub(crate) values: Tensor<1>,
    /// What rounding may have done to them.
    pub(crate) rounding: Rounding,
}

/// How far a squared norm can be from that of the gradient which the weighted sum adds.
///
/// The magnitudes, `[batch_size]`, are bounds `(Σ_t ‖a_t‖‖g_t‖)²` on the squared sum of what was added
/// up, which cancellation can make larger than the squared norm.
pub(crate) enum Rounding {
    /// As far as the relative precision of f32.
    Relative,
    /// The squared norm is a sum of such products: an error of a few units in the last place of the
    /// squared magnitude.
    Gram(Tensor<1>),
    /// The gradient was formed in another order than in the weighted sum: an error of a few units in
    /// the last place of the magnitude, in the norm.
    Reordered(Tensor<1>),
}

impl SquaredNorms {
    /// The norms of one part of the batch after another.
    pub(crate) fn concatenate(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let (mut values, mut magnitudes, mut gram) = (Vec::new(), Vec::new(), false);
        for part in parts {
            values.push(part.values);
            match part.rounding {
                Rounding::Relative => {}
                Rounding::Gram(magnitude) => {
                    gram = true;
                    magnitudes.push(magnitude);
                }
                Rounding::Reordered(magnitude) => magnitudes.push(magnitude),
            }
        }
        let rounding = match magnitudes.is_empty() {
            true => Rounding::Relative,
            false if gram => Rounding::Gram(Tensor::cat(magnitudes, 0)),
            false => Rounding::Reordered(Tensor::cat(magnitudes, 0)),
        };
        Self { values: Tensor::cat(values, 0), rounding }
    }
}

/// `Σ_i coefficients[i] · rows[i]`.
///
/// # Shapes
///
/// - coefficients: `[batch_size]`
/// - rows: `[batch_size, values]`
/// - output: `[values]`
pub(crate) fn weighted_rows(coefficients: Tensor<1>, rows: Tensor<2>) -> Tensor<1> {
    let values = rows.dims()[1];
    coefficients.unsqueeze::<2>().matmul(rows).reshape([values])
}

/// Number of values.
fn size(shape: Shape) -> usize {
    shape.num_elements()
}

/// Rows of a tensor: axis 0 stays, all others become one.
pub(super) fn rows<const D: usize>(tensor: Tensor<D>) -> Tensor<2> {
    let dims = tensor.dims();
    tensor.reshape([dims[0], dims[1..].iter().product()])
}
