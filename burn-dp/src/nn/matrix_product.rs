//! The product with a weight that layers and adapters share.

use burn::module::Param;
use burn::tensor::{Tensor, module};

use crate::ops::{self, Primitive};

/// Returns `input @ weight + bias` with the parameters as they are stored.
///
/// # Shapes
///
/// - input: `[batch_size, …, d_input]`
/// - output: `[batch_size, …, d_output]`
pub(super) fn matrix_product<const D: usize>(
    weight: &Param<Tensor<2>>,
    bias: Option<&Param<Tensor<1>>>,
    input: Tensor<D>,
) -> Tensor<D> {
    if let Some(output) = without_rows(&input, weight.dims()[1]) {
        return output;
    }
    let kept = input.clone();
    ops::apply(
        weight,
        bias,
        Primitive::Linear,
        || ops::keep(kept),
        |weight, bias| module::linear(input, weight, bias),
    )
}

/// Returns the output for an input without examples or positions, or `None` for other inputs.
///
/// Not every backend can multiply a matrix without rows.
pub(super) fn without_rows<const D: usize>(
    input: &Tensor<D>,
    d_output: usize,
) -> Option<Tensor<D>> {
    let mut shape = input.dims();
    shape[D - 1] = d_output;
    let rows: usize = shape[..D - 1].iter().product();
    (rows == 0).then(|| Tensor::zeros(shape, (&input.device(), input.dtype())))
}
