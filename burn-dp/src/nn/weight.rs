//! The operations on one weight that layers and their adapters share.

use burn::module::Param;
use burn::tensor::{DType, Int, Tensor, module};

use crate::ops::{self, Convolution, Kept, Primitive};

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
        |weight, bias| ops::matrix_product(input, weight, bias),
    )
}

/// Returns `input @ weight + bias` with a packed weight, which is never trained. It is unpacked in
/// the forward and again in the backward pass.
pub(super) fn packed_product<const D: usize>(
    weight: &Param<Tensor<2>>,
    bias: Option<&Param<Tensor<1>>>,
    input: Tensor<D>,
) -> Tensor<D> {
    let packed = weight.base();
    if let Some(output) = without_rows(&input, weight.dims()[1]) {
        return output;
    }
    // The tap of the bias requires a weight, which is not trained.
    let none = Tensor::<2>::zeros([1, 1], (&input.device(), input.dtype()));
    ops::apply(
        &Param::initialized(weight.id, none),
        bias,
        Primitive::Linear,
        || Kept::Nothing,
        |_, bias| {
            let output = ops::packed_linear(input, packed);
            match bias {
                Some(bias) => output + bias.unsqueeze(),
                None => output,
            }
        },
    )
}

/// Returns whether the stored value is packed.
pub(super) fn is_packed<const D: usize>(parameter: &Param<Tensor<D>>) -> bool {
    matches!(parameter.base().dtype(), DType::QFloat(_))
}

/// Returns `input @ weightᵀ` with the weight as it is stored.
///
/// # Shapes
///
/// - weight: `[d_output, d_input]`
/// - input: `[batch_size, …, d_input]`
/// - output: `[batch_size, …, d_output]`
pub(super) fn transposed_product<const D: usize>(
    weight: &Param<Tensor<2>>,
    input: Tensor<D>,
) -> Tensor<D> {
    if let Some(output) = without_rows(&input, weight.dims()[0]) {
        return output;
    }
    let kept = input.clone();
    ops::apply(
        weight,
        None,
        Primitive::TransposedLinear,
        || ops::keep(kept),
        |weight, _| ops::matrix_product(input, weight.transpose(), None),
    )
}

/// Returns the rows of the weight at the ids; NaN for an id that is not a row.
///
/// # Shapes
///
/// - ids: `[batch_size, positions]`
/// - output: `[batch_size, positions, columns]`
pub(super) fn look_up(weight: &Param<Tensor<2>>, ids: Tensor<2, Int>) -> Tensor<3> {
    let kept = ids.clone();
    let (ids, outside) = ops::bounded(ids, weight.dims()[0]);
    ops::apply(
        weight,
        None,
        Primitive::Embedding,
        || ops::keep_ids(kept),
        |weight, _| {
            let output: Tensor<3> = module::embedding(weight, ids);
            match outside {
                Some(outside) => {
                    let outside = outside.unsqueeze_dim::<3>(2).expand(output.dims());
                    output.mask_fill(outside, f32::NAN)
                }
                None => output,
            }
        },
    )
}

/// Applies a convolution of one to three axes, which may be transposed, with a kernel of shape
/// `kernel` that the weight stores in this or another shape.
pub(super) fn convolved<const W: usize, const D: usize>(
    weight: &Param<Tensor<W>>,
    kernel: [usize; D],
    bias: Option<&Param<Tensor<1>>>,
    convolution: Convolution,
    input: Tensor<D>,
) -> Tensor<D> {
    let kept = input.clone();
    let other_shape = weight.dims().as_slice() != kernel;
    ops::apply(
        weight,
        bias,
        Primitive::Convolution {
            convolution: convolution.clone(),
            kernel: other_shape.then(|| kernel.into()),
        },
        || ops::keep(kept),
        |weight, bias| ops::convolution(input, weight.reshape(kernel), bias, convolution),
    )
}

/// Returns the output for an input without examples or positions, or `None` for other inputs.
///
/// Not every backend can multiply a matrix without rows.
fn without_rows<const D: usize>(input: &Tensor<D>, d_output: usize) -> Option<Tensor<D>> {
    let mut shape = input.dims();
    shape[D - 1] = d_output;
    let rows: usize = shape[..D - 1].iter().product();
    (rows == 0).then(|| Tensor::zeros(shape, (&input.device(), input.dtype())))
}
