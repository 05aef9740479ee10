use std::fmt::Debug;

use burn::tensor::{Shape, Tensor};

use super::{Cost, Factors, Keep, Magnitudes, Restriction, SquaredNorms, Transposed};
use crate::ops::weighted_rows;

/// The contribution of a layer to the per-example gradients of one parameter.
pub(in crate::grads) trait Rule: Debug {
    /// Returns the number of examples, or of units if every unit has several rows.
    fn batch_size(&self) -> usize;

    /// Returns the costs for one example.
    fn cost(&self) -> Cost;

    /// Returns the name of the rule.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Returns the number of values that the rule keeps until the weighted sum.
    fn kept_values(&self) -> usize;

    /// Returns the squared norms without instantiating the gradients; `None` if the rule does not
    /// support this.
    ///
    /// - factors: intermediate results from the norms of other parameters
    #[allow(unused_variables)]
    fn ghost_norms(&self, factors: &mut Factors) -> Option<SquaredNorms> {
        None
    }

    /// Returns bounds on the terms that add up to a gradient; `None` if the weighted sum does not
    /// add terms that can cancel in another order.
    fn magnitudes(&self) -> Option<Magnitudes> {
        None
    }

    /// Returns the per-example gradients, `[batch_size, values]`, in the order of the parameter's
    /// values.
    fn instantiate(&self) -> Tensor<2>;

    /// Returns the per-example gradients if a native kernel instantiates them without temporary
    /// tensors.
    fn instantiate_at_once(&self) -> Option<Transposed> {
        None
    }

    /// Adds the per-example gradients to `gradients`, which has the same shape.
    fn add_to(&self, gradients: Tensor<2>) -> Tensor<2> {
        gradients + self.instantiate()
    }

    /// Returns the products of the per-example gradients with `direction`, `[batch_size]`, without
    /// instantiating the gradients; `None` if the rule does not support this.
    #[allow(unused_variables)]
    fn products(&self, direction: Tensor<1>) -> Option<Tensor<1>> {
        None
    }

    /// Returns `Σ_i coefficients[i] · gradient_i`, flattened: `[values]`.
    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        weighted_rows(coefficients, self.instantiate())
    }

    /// Returns the weighted sum over the examples that `keep` does not drop. The others, whose
    /// coefficients are zero, count as zero even if they hold NaN or infinity.
    fn kept_sum(&self, coefficients: Tensor<1>, keep: &Keep) -> Tensor<1> {
        self.restrict(&Restriction::Keep(keep)).weighted_sum(coefficients)
    }

    /// Returns the rule for some of the examples.
    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule>;

    /// Returns the rule in which every `group_size` rows are positions of one unit; `None` if the
    /// rule cannot express that.
    fn regroup(&self, _group_size: usize) -> Option<Box<dyn Rule>> {
        None
    }
}

/// Returns the number of values.
pub(super) fn size(shape: Shape) -> usize {
    shape.num_elements()
}

/// Flattens the rows of a tensor: axis 0 stays, all other axes become one.
pub(super) fn rows<const D: usize>(tensor: Tensor<D>) -> Tensor<2> {
    let dims = tensor.dims();
    tensor.reshape([dims[0], dims[1..].iter().product()])
}
