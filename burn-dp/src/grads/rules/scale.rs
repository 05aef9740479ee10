use burn::tensor::Tensor;

use super::{Cost, Restriction, Rule};

/// A weight that scales its input along one axis, as the gain of every norm does: the gradient of
/// example i is the sum of `input ∘ output_grad` over the other axes.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// `[batch_size, outer, parameters, inner]`.
    pub(crate) input: Tensor<4>,
    /// `[batch_size, outer, parameters, inner]`.
    pub(crate) output_grad: Tensor<4>,
}

impl Rule for Scale {
    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        let [_, outer, parameters, inner] = self.output_grad.dims();
        Cost { values: parameters, temporary: outer * parameters * inner, ..Cost::default() }
    }

    fn instantiate(&self) -> Tensor<2> {
        sums(self.input.clone() * self.output_grad.clone())
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self {
            input: examples.apply(&self.input),
            output_grad: examples.apply(&self.output_grad),
        })
    }

    fn regroup(&self, group_size: usize) -> Option<Box<dyn Rule>> {
        Some(Box::new(Self {
            input: regroup(&self.input, group_size),
            output_grad: regroup(&self.output_grad, group_size),
        }))
    }
}

/// A bias along one axis: the gradient of example i is the sum of `output_grad` over the other axes.
#[derive(Clone, Debug)]
pub(crate) struct Shift {
    /// `[batch_size, outer, parameters, inner]`.
    pub(crate) output_grad: Tensor<4>,
}

impl Rule for Shift {
    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        Cost { values: self.output_grad.dims()[2], ..Cost::default() }
    }

    fn instantiate(&self) -> Tensor<2> {
        sums(self.output_grad.clone())
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self { output_grad: examples.apply(&self.output_grad) })
    }

    fn regroup(&self, group_size: usize) -> Option<Box<dyn Rule>> {
        Some(Box::new(Self { output_grad: regroup(&self.output_grad, group_size) }))
    }
}

/// Sums over all axes but those of examples and parameters, `[batch_size, parameters]`.
fn sums(tensor: Tensor<4>) -> Tensor<2> {
    let [batch_size, outer, parameters, inner] = tensor.dims();
    let mut rows: Tensor<2> = tensor.reshape([batch_size * outer * parameters, inner]);
    if inner != 1 {
        rows = rows.sum_dim(1);
    }
    let mut rows: Tensor<3> = rows.reshape([batch_size, outer, parameters]);
    if outer != 1 {
        rows = rows.sum_dim(1);
    }
    rows.reshape([batch_size, parameters])
}

/// The rows of every unit as outer positions of one.
fn regroup(tensor: &Tensor<4>, group_size: usize) -> Tensor<4> {
    let [rows, outer, parameters, inner] = tensor.dims();
    tensor.clone().reshape([rows / group_size, outer * group_size, parameters, inner])
}
