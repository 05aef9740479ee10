//! Biases, along one axis of the output of a layer.
//!
//! The gradient of example i is the sum of `output_grad` over all axes except the axis of the bias.

use burn::tensor::Tensor;

use super::record::Record;
use super::rule::size;
use super::{Cost, Keep, Restriction, Rule};
use crate::ops;

/// Lifts the bias along `axis` of the output, if it is trained.
pub(super) fn lift<const D: usize>(record: &mut Record, output_grad: &Tensor<D>, axis: usize) {
    let dims = output_grad.dims();
    lift_shift(record, || Shift {
        output_grad: output_grad.clone().reshape([
            dims[0],
            dims[1..axis].iter().product(),
            dims[axis],
            dims[axis + 1..].iter().product(),
        ]),
        rows: None,
    });
}

/// Lifts a bias whose gradient is the gradient of the output, `[batch_size, parameters]`, if it is
/// trained.
pub(super) fn lift_rows(record: &mut Record, output_grad: &Tensor<2>) {
    let [batch_size, parameters] = output_grad.dims();
    lift_shift(record, || Shift {
        output_grad: output_grad.clone().reshape([batch_size, 1, parameters, 1]),
        rows: Some(output_grad.clone()),
    });
}

fn lift_shift(record: &mut Record, shift: impl FnOnce() -> Shift) {
    let Some(id) = record.bias() else {
        return;
    };
    record.push_to(id, shift());
}

/// A bias along one axis.
#[derive(Clone, Debug)]
struct Shift {
    /// `[batch_size, outer, parameters, inner]`.
    output_grad: Tensor<4>,
    /// The gradients, if nothing has to be added: `[batch_size, parameters]`.
    rows: Option<Tensor<2>>,
}

impl Rule for Shift {
    fn kept_values(&self) -> usize {
        size(self.output_grad.shape())
    }

    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        Cost { values: self.output_grad.dims()[2], ..Cost::default() }
    }

    fn instantiate(&self) -> Tensor<2> {
        self.rows.clone().unwrap_or_else(|| ops::axis_sums(self.output_grad.clone()))
    }

    fn kept_sum(&self, coefficients: Tensor<1>, keep: &Keep) -> Tensor<1> {
        keep.weighted_rows(coefficients, self.instantiate())
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(match examples {
            Restriction::All => self.clone(),
            _ => Self { output_grad: examples.apply(&self.output_grad), rows: None },
        })
    }

    fn regroup(&self, group_size: usize) -> Option<Box<dyn Rule>> {
        Some(Box::new(Self { output_grad: regroup(&self.output_grad, group_size), rows: None }))
    }
}

/// Turns the rows of every unit into outer positions of one example.
pub(super) fn regroup(tensor: &Tensor<4>, group_size: usize) -> Tensor<4> {
    let [rows, outer, parameters, inner] = tensor.dims();
    tensor.clone().reshape([rows / group_size, outer * group_size, parameters, inner])
}
