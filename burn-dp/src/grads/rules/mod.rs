//! The per-example rules, one a file: how the gradient of one parameter, for each example, follows
//! from a layer's input and the gradient of its output.

mod conv;
mod linear;

pub(crate) use conv::{ConvBias, ConvWeight};
pub(crate) use linear::{LinearBias, LinearWeight};

use burn::tensor::Tensor;

pub(crate) use crate::ops::row_squared_norms;

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

/// Costs of the ways to reach a norm, for one example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Floating-point operations of the ghost norm beyond what the weighted sum costs; `None` where
    /// the rule has no ghost norm.
    pub(crate) ghost_flops: Option<f64>,
    /// Values of the per-example gradient.
    pub(crate) values: usize,
    /// Values of the temporaries that instantiation needs.
    pub(crate) temporary: usize,
}

/// The contribution of one use of a layer to one parameter.
#[derive(Clone, Debug)]
pub(crate) enum ExampleRule {
    LinearWeight(LinearWeight),
    LinearBias(LinearBias),
    ConvWeight(ConvWeight),
    ConvBias(ConvBias),
}

macro_rules! each_rule {
    ($self:expr, $rule:ident => $body:expr) => {
        match $self {
            ExampleRule::LinearWeight($rule) => $body,
            ExampleRule::LinearBias($rule) => $body,
            ExampleRule::ConvWeight($rule) => $body,
            ExampleRule::ConvBias($rule) => $body,
        }
    };
}

impl ExampleRule {
    /// Costs for one example.
    pub(crate) fn cost(&self) -> Cost {
        each_rule!(self, rule => rule.cost())
    }

    /// Number of examples.
    pub(crate) fn batch_size(&self) -> usize {
        each_rule!(self, rule => rule.output_grad.dims()[0])
    }

    /// Name of the rule.
    pub(crate) fn name(&self) -> &'static str {
        let path = each_rule!(self, rule => std::any::type_name_of_val(rule));
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Values of what the rule keeps until the weighted sum.
    pub(crate) fn kept_values(&self) -> usize {
        let input = match self {
            Self::LinearWeight(rule) => rule.input.shape().num_elements(),
            Self::ConvWeight(rule) => rule.input.shape().num_elements(),
            Self::LinearBias(_) | Self::ConvBias(_) => 0,
        };
        input + each_rule!(self, rule => rule.output_grad.shape().num_elements())
    }

    /// Squared norms without forming the gradients, where the rule has such a way.
    pub(crate) fn ghost_norms(&self) -> Option<SquaredNorms> {
        match self {
            Self::LinearWeight(rule) => Some(rule.ghost_norms()),
            Self::ConvWeight(rule) => Some(rule.ghost_norms()),
            Self::LinearBias(_) | Self::ConvBias(_) => None,
        }
    }

    /// Bounds `(Σ_t ‖a_t‖‖g_t‖)²` on what is added up to reach a gradient, `[batch_size]`; `None` where
    /// nothing can cancel that the weighted sum adds in another order.
    pub(crate) fn magnitudes(&self) -> Option<Tensor<1>> {
        match self {
            Self::LinearWeight(rule) => Some(rule.magnitudes()),
            Self::ConvWeight(rule) => Some(rule.magnitudes()),
            Self::LinearBias(_) | Self::ConvBias(_) => None,
        }
    }

    /// The per-example gradients, `[batch_size, values]`, in the order of the parameter's values.
    pub(crate) fn instantiate(&self) -> Tensor<2> {
        each_rule!(self, rule => rule.instantiate())
    }

    /// The same with the rows of each unit summed, `[units, values]`.
    pub(crate) fn instantiate_groups(&self, units: usize) -> Tensor<2> {
        let rows = self.instantiate();
        let [count, values] = rows.dims();
        if count == units {
            return rows;
        }
        rows.reshape([units, count / units, values]).sum_dim(1).reshape([units, values])
    }

    /// Makes one row of every `group_size` rows where the rule can: positions of one unit.
    pub(crate) fn regroup(self, group_size: usize) -> Self {
        match self {
            Self::LinearWeight(rule) if group_size > 1 => {
                Self::LinearWeight(rule.regroup(group_size))
            }
            rule => rule,
        }
    }

    /// `Σ_i coefficients[i] · gradient_i`, flattened: `[values]`.
    pub(crate) fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        match self {
            Self::LinearWeight(rule) => rule.weighted_sum(coefficients),
            Self::ConvWeight(rule) => rule.weighted_sum(coefficients),
            Self::LinearBias(_) | Self::ConvBias(_) => {
                weighted_rows(coefficients, self.instantiate())
            }
        }
    }

    /// The rule restricted to the examples `range`.
    pub(crate) fn narrow(&self, start: usize, length: usize) -> Self {
        match self {
            Self::LinearWeight(rule) => Self::LinearWeight(LinearWeight {
                input: rule.input.clone().narrow(0, start, length),
                output_grad: rule.output_grad.clone().narrow(0, start, length),
            }),
            Self::LinearBias(rule) => Self::LinearBias(LinearBias {
                output_grad: rule.output_grad.clone().narrow(0, start, length),
            }),
            Self::ConvWeight(rule) => Self::ConvWeight(ConvWeight {
                input: rule.input.clone().narrow(0, start, length),
                output_grad: rule.output_grad.clone().narrow(0, start, length),
                weight: rule.weight,
                options: rule.options.clone(),
            }),
            Self::ConvBias(rule) => Self::ConvBias(ConvBias {
                output_grad: rule.output_grad.clone().narrow(0, start, length),
            }),
        }
    }

    /// Replaces the rows of the examples that `keep` marks with `false` by zeros, by selection: a
    /// product with zero would keep a NaN.
    pub(crate) fn select(&self, keep: &Keep) -> Self {
        match self {
            Self::LinearWeight(rule) => Self::LinearWeight(LinearWeight {
                input: keep.apply(rule.input.clone()),
                output_grad: keep.apply(rule.output_grad.clone()),
            }),
            Self::LinearBias(rule) => {
                Self::LinearBias(LinearBias { output_grad: keep.apply(rule.output_grad.clone()) })
            }
            Self::ConvWeight(rule) => Self::ConvWeight(ConvWeight {
                input: keep.apply(rule.input.clone()),
                output_grad: keep.apply(rule.output_grad.clone()),
                weight: rule.weight,
                options: rule.options.clone(),
            }),
            Self::ConvBias(rule) => {
                Self::ConvBias(ConvBias { output_grad: keep.apply(rule.output_grad.clone()) })
            }
        }
    }
}

/// Which examples to keep.
pub(crate) struct Keep {
    drop: Tensor<1, burn::tensor::Bool>,
}

impl Keep {
    pub(crate) fn new(keep: &[bool], device: &burn::tensor::Device) -> Self {
        let drop: Vec<bool> = keep.iter().map(|keep| !keep).collect();
        Self { drop: Tensor::from_data(drop.as_slice(), device) }
    }

    /// Zeros in the rows that are not kept.
    pub(crate) fn apply<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        let mut shape = [1; D];
        shape[0] = tensor.dims()[0];
        let mask = self.drop.clone().reshape(shape).expand(tensor.dims());
        tensor.mask_fill(mask, 0.0)
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
